// @vitest-environment jsdom
import { expect, test } from "vitest";
import "../src/extension";

test("JupyterLab finds a plugin that adds one style, and the panel's own is added all the same", async () => {
  const container = window._JUPYTERLAB?.it2nb;
  if (container === undefined) throw new Error("nothing was registered");
  container.init();
  const factory = await container.get("./extension");
  const { default: plugin } = factory() as { default: { id: string; activate(): void } };
  expect(plugin.id).toBe("it2nb:picture");
  plugin.activate();
  const styles = [...document.head.querySelectorAll("style")];
  expect(styles).toHaveLength(1);
  expect(styles[0]?.textContent).toContain('img[width="861"]');
  // The panel looks for its own style by this mark.
  expect(document.querySelector("style[data-it2nb]")).toBeNull();
});
