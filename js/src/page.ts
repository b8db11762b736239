/**
 * The panel as a page of its own. It stands at no fixed address: where it is, and the token, are
 * in the address of this script.
 */

import type { Asset } from "./assets";
import type { PanelModule } from "./index";
import { Socket } from "./socket";

declare const __PANEL__: Asset;
declare const __CHART__: Asset;

const here = new URL(import.meta.url);
const token = here.searchParams.get("token") ?? "";

/** The address of something of this server, whatever the prefix. */
function at(path: string, protocol = here.protocol): string {
  const url = new URL(`../${path}`, here);
  url.protocol = protocol;
  url.searchParams.set("token", token);
  return url.href;
}

async function load(asset: Asset): Promise<unknown> {
  const url = new URL(at(`static/${asset.name}`));
  url.searchParams.set("v", asset.build);
  return import(/* @vite-ignore */ url.href);
}

async function start(): Promise<void> {
  const element = document.getElementById("panel");
  if (element === null) throw new Error("the page has no place for the panel");
  const { open } = (await load(__PANEL__)) as PanelModule;
  const socket = new Socket(at("panel", here.protocol === "https:" ? "wss:" : "ws:"));
  const session = open({
    port: socket,
    client: crypto.getRandomValues(new Uint32Array(4)).join("-"),
    chart: () => load(__CHART__),
    control: Promise.resolve(socket.model),
    place: "page",
  });
  socket.onOpen = () => session.channel.hello();
  session.show(element, new AbortController().signal);
}

const dark = matchMedia("(prefers-color-scheme: dark)");
function paint(): void {
  document.documentElement.dataset.theme = dark.matches ? "dark" : "light";
}
dark.addEventListener("change", paint);
paint();

// A link that works once brought us here: a reload needs the token itself.
if (new URL(location.href).searchParams.has("ticket")) {
  history.replaceState(null, "", `?token=${encodeURIComponent(token)}`);
}
start().catch((error: unknown) => {
  document.body.append(`it2nb: the panel did not load (${String(error)})`);
});
