// Uses the demo page as a reader does: node visit.mjs NODE_MODULES BROWSER ADDRESS FOLDER. Prints what the page says, as JSON.

import { createRequire } from "node:module";

const [modules, executablePath, address, folder] = process.argv.slice(2);
const { chromium } = createRequire(`${modules}/`)("playwright-core");
const QUIET = ["background-networking", "component-update", "sync", "gpu"].map((name) => `--disable-${name}`);

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--no-first-run", ...QUIET] });
const page = await browser.newPage({ viewport: { width: 1280, height: 1400 } });
const said = { requests: [], errors: [], pictures: {}, toys: {} };
page.on("request", (request) => said.requests.push(request.url()));
page.on("pageerror", (error) => said.errors.push(error.message));
page.on("console", (line) => line.type() === "error" && said.errors.push(line.text()));
page.setDefaultTimeout(60_000);

/** What the page shows, once it has said that it is done. */
async function shown() {
  await page.waitForSelector("#demo[aria-busy=false]");
  return page.evaluate(() => {
    const pixels = (id) => {
      const canvas = document.getElementById(id);
      if (!canvas) return null;
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      return [...data].filter((_, index) => index % 4 === 0);
    };
    return {
      status: document.getElementById("demo-status").textContent,
      lengths: [...document.querySelectorAll("#demo-lengths button")].map((row) => Number(row.dataset.length)),
      input: pixels("demo-input"),
      reconstruction: pixels("demo-reconstruction"),
      map: pixels("demo-map"),
      children: [...document.querySelectorAll("#demo-children tr")].map((row) =>
        [...row.cells].map((cell) => Number(cell.textContent)),
      ),
      capsule: document.querySelector("#demo-lengths [aria-pressed=true] span").textContent,
    };
  });
}

/** What the page shows after something is done to it. */
async function after(action) {
  await action();
  return shown();
}

await page.goto(`${address}/demo.html`);
await page.waitForSelector("#demo-pictures button");
said.before = await page.textContent("#demo-status");
for (const button of await page.$$("#demo-pictures button"))
  said.pictures[await button.getAttribute("data-picture")] = await after(() => button.click());

await page.click("#demo-clear");
said.cleared = await page.isHidden("#demo-result");
const box = await page.locator("#demo-canvas").boundingBox();
said.drawn = await after(async () => {
  await page.mouse.move(box.x + 150, box.y + 40);
  await page.mouse.down();
  await page.mouse.move(box.x + 135, box.y + 230, { steps: 20 });
  await page.mouse.up();
});
await page.screenshot({ path: `${folder}/drawn.png` });

const slider = page.locator("#demo-sliders input").nth(4);
said.moved = await after(() => slider.fill("0.25"));
said.reset = await after(() => page.click("#demo-reset"));
said.chosen = await after(() => page.locator("#demo-lengths button").nth(7).click());
await page.screenshot({ path: `${folder}/chosen.png` });

await page.click("#demo-clear");
await page.focus("#demo-canvas");
said.typed = await after(async () => {
  await page.keyboard.press("Space");
  for (let step = 0; step < 10; step++) await page.keyboard.press("ArrowDown");
});

await page.goto(`${address}/demo_toys.html`);
await page.waitForSelector("#demo-pictures button");
for (const button of await page.$$("#demo-pictures button"))
  said.toys[await button.getAttribute("data-picture")] = await after(() => button.click());
said.pens = await page.locator("#demo-canvas").count();
await page.screenshot({ path: `${folder}/toys.png` });

const old = await browser.newPage();
await old.addInitScript(() => delete globalThis.WebAssembly);
await old.goto(`${address}/demo.html`);
await old.locator("#demo-pictures button").first().click();
await old.waitForSelector("#demo[aria-busy=false]");
said.without_webassembly = await old.textContent("#demo-status");

console.log(JSON.stringify(said));
await browser.close();
