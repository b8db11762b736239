import { defineConfig } from "vite";

export default defineConfig({ server: { fs: { allow: [".."] }, host: "127.0.0.1" } });
