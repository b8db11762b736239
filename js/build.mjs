// Builds into it2nb/notebook/static:
//   loader.js   the widget's _esm: small, since it is saved into notebooks
//   panel.mjs   the panel
//   chart.mjs   plotly.js, scatter only
//   page.mjs    what a server's page loads first
//   remoteEntry.js, labextension.json   what JupyterLab loads with every page
// panel.mjs and chart.mjs carry a hash of their content, by which loader and page know the build
// they belong to.
import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.env.IT2NB_JS_OUT ?? join(here, "..", "it2nb", "notebook", "static");

async function bundle(entry, define = {}) {
  const result = await build({
    root: here,
    configFile: false,
    logLevel: "warn",
    define,
    build: {
      write: false,
      minify: true,
      target: "es2022",
      lib: { entry: join(here, "src", entry), formats: ["es"] },
    },
  });
  const [{ output }] = Array.isArray(result) ? result : [result];
  const chunks = output.filter((each) => each.type === "chunk");
  if (chunks.length !== 1) throw new Error(`${entry} became ${chunks.length} files, not one`);
  return chunks[0].code;
}

/** plotly.js as a module, which leaves no global of its own on a page that may have another. */
async function chart() {
  const file = join(here, "node_modules", "plotly.js-basic-dist-min", "plotly-basic.min.js");
  const source = await readFile(file, "utf8");
  const global = "window.Plotly = Plotly;";
  if (!source.includes(global)) throw new Error("plotly.js has changed: look at js/build.mjs");
  return (
    "const module={exports:{}};\n" +
    source.replace(global, "") +
    "\nexport default module.exports;\n"
  );
}

async function write(name, code) {
  const hash = createHash("sha256").update(code).digest("hex").slice(0, 12);
  await writeFile(join(out, name), `${code}\nexport const build="${hash}";\n`);
  return JSON.stringify({ name, build: hash });
}

await rm(out, { recursive: true, force: true });
await mkdir(out, { recursive: true });
const __CHART__ = await write("chart.mjs", await chart());
const __PANEL__ = await write("panel.mjs", await bundle("index.ts"));
await writeFile(join(out, "loader.js"), await bundle("loader.ts", { __PANEL__, __CHART__ }));
await writeFile(join(out, "page.mjs"), await bundle("page.ts", { __PANEL__, __CHART__ }));
await writeFile(join(out, "remoteEntry.js"), await bundle("extension.ts"));
const extension = {
  name: "it2nb",
  version: "0.1.0",
  license: "MIT",
  description: "Shows the last picture of a steered run where there is no live panel",
  jupyterlab: {
    extension: true,
    _build: { load: "static/remoteEntry.js", extension: "./extension" },
  },
};
await writeFile(join(out, "labextension.json"), `${JSON.stringify(extension, null, 1)}\n`);
