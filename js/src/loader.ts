/**
 * The widget's `_esm`: a few kilobytes, because it is saved into notebooks with each panel. It
 * opens the channel, loads the panel's own code once a page, and says so while it waits.
 */

import { type Asset, loadAsset } from "./assets";
import type { Bundle, PanelModule, Session } from "./index";
import { type Model, type Port, portOf } from "./port";

declare const __PANEL__: Asset;
declare const __CHART__: Asset;

interface Started {
  session: Promise<Session>;
}

const started = new Map<string, Started>();

function start(model: Model): Started {
  const id = String(model.get("panel_id"));
  const known = started.get(id);
  if (known !== undefined) return known;
  const name = String(model.get("control"));
  const manager = model.widget_manager;
  const control = manager ? manager.get_model(name) : Promise.reject(new Error("no manager"));
  const port: Port = portOf(model, control);
  const client = crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
  const chart = () => loadAsset(__CHART__, port, client);
  // The extension listens, where there is one (extension.ts).
  const keep = (bundle: Bundle) =>
    dispatchEvent(new CustomEvent("it2nb:picture", { detail: { panel: id, bundle } }));
  const session = loadAsset(__PANEL__, port, client).then((module) =>
    (module as PanelModule).open({ port, client, chart, control, keep }),
  );
  const mine = { session };
  started.set(id, mine);
  session.catch(() => started.delete(id));
  return mine;
}

function initialize({ model, signal }: { model: Model; signal?: AbortSignal }): () => void {
  const { session } = start(model);
  const end = () => {
    started.delete(String(model.get("panel_id")));
    session.then(
      (open) => open.close(),
      () => undefined,
    );
  };
  signal?.addEventListener("abort", end, { once: true });
  return end;
}

function render({
  model,
  el,
  signal,
}: {
  model: Model;
  el: HTMLElement;
  signal?: AbortSignal;
}): () => void {
  const over = new AbortController();
  signal?.addEventListener("abort", () => over.abort(), { once: true });
  const note = document.createElement("div");
  note.setAttribute("role", "status");
  note.style.cssText = "padding:8px 12px;color:var(--jp-ui-font-color2,#59616b);font-size:13px";
  note.textContent = "it2nb: loading the panel";
  el.append(note);
  const late = setTimeout(() => {
    note.textContent =
      "it2nb: waiting for the kernel. When a cell is running, the panel comes when it ends; " +
      "where no kernel is connected, the picture below is the last state. In Python: " +
      String(model.get("python"));
  }, 2_000);
  over.signal.addEventListener("abort", () => clearTimeout(late));
  start(model).session.then(
    (session) => {
      clearTimeout(late);
      if (over.signal.aborted) return;
      note.remove();
      session.show(el, over.signal);
    },
    (error: unknown) => {
      clearTimeout(late);
      note.textContent = `it2nb: the panel did not load (${String(error)}). In Python: ${String(model.get("python"))}`;
    },
  );
  return () => over.abort();
}

export default { initialize, render };
