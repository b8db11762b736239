/** Scripts that are loaded once a page: this panel's own code, and the chart library. */

import type { Port } from "./port";
import type { AssetAsk } from "./wire";

export type AssetName = AssetAsk["name"];

/** Name and content hash of a script; a module of another build is not taken. */
export interface Asset {
  name: AssetName;
  build: string;
}

interface Page {
  modules: Map<string, Promise<unknown>>;
}

declare global {
  interface Window {
    __it2nb?: Page;
  }
}

/** The page's one copy of a script; `null` client or a failure is forgotten, so it is tried again. */
export function loadAsset(asset: Asset, port: Port, client: string): Promise<unknown> {
  window.__it2nb ??= { modules: new Map() };
  const { modules } = window.__it2nb;
  const key = `${asset.name}@${asset.build}`;
  let found = modules.get(key);
  if (found === undefined) {
    found = fromServer(asset).catch(() => fromKernel(asset, port, client));
    found.catch(() => modules.delete(key));
    modules.set(key, found);
  }
  return found;
}

/** From the prebuilt extension's folder, where the server has it. */
async function fromServer(asset: Asset): Promise<unknown> {
  const config = document.getElementById("jupyter-config-data")?.textContent;
  if (!config) throw new Error("not a Jupyter page");
  const folder = (JSON.parse(config) as { fullLabextensionsUrl?: string }).fullLabextensionsUrl;
  if (!folder) throw new Error("no extension folder");
  // A module that was imported from a blob can't import a path: the URL must be whole.
  const url = new URL(`${folder}/it2nb/static/${asset.name}?v=${asset.build}`, location.href);
  const module = (await import(/* @vite-ignore */ url.href)) as { build?: string };
  if (module.build !== asset.build) throw new Error("the server has another version");
  return module;
}

/** Gzipped, over the comm. */
async function fromKernel(asset: Asset, port: Port, client: string): Promise<unknown> {
  const packed = await new Promise<DataView>((resolve) => {
    const stop = port.listen((message, _, buffers) => {
      const buffer = buffers[0];
      if (message.kind !== "asset" || message.name !== asset.name || !buffer) return;
      stop();
      resolve(buffer);
    });
    port.send({ v: 2, kind: "asset", client, name: asset.name });
  });
  const bytes = new Uint8Array(packed.buffer, packed.byteOffset, packed.byteLength).slice();
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const text = await new Response(plain).blob();
  const url = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  try {
    return await import(/* @vite-ignore */ url);
  } finally {
    URL.revokeObjectURL(url);
  }
}
