/**
 * The part of the panel that JupyterLab loads with every page, kernel or not. A reopened notebook
 * has no widget state, and where the panel stood JupyterLab writes "model not found"; the picture
 * of the run's last state stands right below, and says more. A page that was reloaded in mid-run
 * doesn't know that picture any more when the kernel renews it: it is put into the notebook here.
 * And a notebook is saved from inside of a panel, whose keys are not JupyterLab's.
 *
 * It is a prebuilt extension by hand: what a bundler's runtime would do is not needed for it.
 */

interface Container {
  init(): void;
  get(module: string): Promise<() => object>;
}

declare global {
  interface Window {
    _JUPYTERLAB?: { [name: string]: Container };
  }
}

/**
 * Only what could not be shown is hidden, and only above our picture, which is told by its width.
 * JupyterLab gives the output itself the class of a widget where there is only its own message.
 */
const STYLE = `
.jp-OutputArea-child:has(> .jp-OutputArea-output.jupyter-widgets):has(
  ~ .jp-OutputArea-child > .jp-RenderedImage > img[width="861"]
) { display: none; }`;

/** What we use of JupyterLab: no package of it is needed for that. */
interface Outputs {
  length: number;
  get(at: number): { toJSON(): Output };
  set(at: number, output: Output): void;
}

interface Output {
  output_type: string;
  data?: { [mime: string]: unknown };
  metadata?: { [key: string]: unknown };
}

interface App {
  commands: { execute(id: string): Promise<unknown> };
  shell: {
    widgets(area: string): Iterable<{
      content?: { model?: { cells?: Iterable<{ outputs?: Outputs }> } | null };
    }>;
  };
}

interface Kept {
  panel: string;
  bundle: { [mime: string]: string };
}

/** Renew the picture of a panel in all notebooks that hold it. */
function keep(app: App, { panel, bundle }: Kept): void {
  for (const widget of app.shell.widgets("main")) {
    for (const { outputs } of widget.content?.model?.cells ?? []) {
      for (let at = 0; at < (outputs?.length ?? 0); at++) {
        const output = outputs?.get(at).toJSON();
        const mark = output?.metadata?.it2nb as { panel?: unknown } | undefined;
        if (output === undefined || mark?.panel !== panel) continue;
        // What stands there already doesn't make the notebook a changed one.
        if (output.data?.["image/png"] === bundle["image/png"]) continue;
        outputs?.set(at, { ...output, data: { ...bundle } });
      }
    }
  }
}

const plugin = {
  id: "it2nb:picture",
  autoStart: true,
  activate(app: App): void {
    const style = document.createElement("style");
    style.dataset.it2nbPicture = "";
    style.textContent = STYLE;
    document.head.append(style);
    addEventListener("it2nb:save", () => void app.commands.execute("docmanager:save"));
    addEventListener("it2nb:picture", (event) => keep(app, (event as CustomEvent<Kept>).detail));
  },
};

window._JUPYTERLAB ??= {};
window._JUPYTERLAB.it2nb = {
  init: () => undefined,
  get: () => Promise.resolve(() => ({ __esModule: true, default: plugin })),
};

export {};
