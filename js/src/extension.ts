/**
 * The part of the panel that JupyterLab loads with every page, kernel or not: a style alone. A
 * reopened notebook has no widget state, and where the panel stood JupyterLab writes "model not
 * found"; the picture of the run's last state stands right below, and says more.
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

const plugin = {
  id: "it2nb:picture",
  autoStart: true,
  activate(): void {
    const style = document.createElement("style");
    style.dataset.it2nbPicture = "";
    style.textContent = STYLE;
    document.head.append(style);
  },
};

window._JUPYTERLAB ??= {};
window._JUPYTERLAB.it2nb = {
  init: () => undefined,
  get: () => Promise.resolve(() => ({ __esModule: true, default: plugin })),
};

export {};
