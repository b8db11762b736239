// @vitest-environment jsdom
import { expect, test } from "vitest";
import "../src/extension";

interface Plugin {
  id: string;
  activate(app: unknown): void;
}

async function find(): Promise<Plugin> {
  const container = window._JUPYTERLAB?.it2nb;
  if (container === undefined) throw new Error("nothing was registered");
  container.init();
  const factory = await container.get("./extension");
  return (factory() as { default: Plugin }).default;
}

/** Commands that JupyterLab was asked for. */
const done: string[] = [];

function appWith(outputs: object[]): unknown {
  const list = {
    get length() {
      return outputs.length;
    },
    get: (at: number) => ({ toJSON: () => outputs[at] }),
    set: (at: number, output: object) => {
      outputs[at] = output;
    },
  };
  const cells = new Set([{}, { outputs: list }]);
  const commands = {
    execute: async (id: string) => {
      done.push(id);
    },
  };
  return { commands, shell: { widgets: () => [{}, { content: { model: { cells } } }] } };
}

test("JupyterLab finds a plugin that adds one style, and the panel's own is added all the same", async () => {
  const plugin = await find();
  expect(plugin.id).toBe("it2nb:picture");
  plugin.activate(appWith([]));
  const styles = [...document.head.querySelectorAll("style")];
  expect(styles).toHaveLength(1);
  expect(styles[0]?.textContent).toContain('img[width="861"]');
  // The panel looks for its own style by this mark.
  expect(document.querySelector("style[data-it2nb]")).toBeNull();
});

test("the picture of a run goes into the output of its panel, and into no other", async () => {
  const output = (panel: string) => ({
    output_type: "display_data",
    data: { "image/png": "old", "text/plain": "old" },
    metadata: { it2nb: { panel } },
  });
  const foreign = { output_type: "display_data", data: { "image/png": "plot" }, metadata: {} };
  const text = { output_type: "stream", text: "hello" };
  const outputs: object[] = [text, foreign, output("a"), output("b")];
  (await find()).activate(appWith(outputs));
  const bundle = { "image/png": "new", "text/plain": "new" };
  dispatchEvent(new CustomEvent("it2nb:picture", { detail: { panel: "b", bundle } }));
  expect(outputs).toEqual([text, foreign, output("a"), { ...output("b"), data: bundle }]);
  const same = outputs[3];
  dispatchEvent(new CustomEvent("it2nb:picture", { detail: { panel: "b", bundle } }));
  expect(outputs[3]).toBe(same);
});

test("the notebook is saved from inside of a panel", async () => {
  (await find()).activate(appWith([]));
  done.length = 0;
  dispatchEvent(new CustomEvent("it2nb:save"));
  expect(done).toContain("docmanager:save");
});
