// Drawing on a canvas, white on black, with a mouse, a finger or the arrow keys.

const WIDTH = 22; // of a line: about two of the 28 pixels where a digit fills the canvas
const STEP = 14; // of an arrow key
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Pen {
  /** canvas: a square one. cursor: an element that shows where the arrow keys are. changed: called after each line. */
  constructor(canvas, cursor, changed) {
    this.canvas = canvas;
    this.cursor = cursor;
    this.changed = changed;
    this.context = canvas.getContext("2d", { willReadFrequently: true });
    this.side = canvas.width;
    this.position = [this.side / 2, this.side / 4];
    this.down = false;
    this.clear();
    canvas.addEventListener("pointerdown", (event) => this.start(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (this.drawing = false));
    canvas.addEventListener("keydown", (event) => this.press(event));
  }

  clear() {
    this.context.fillStyle = "black";
    this.context.fillRect(0, 0, this.side, this.side);
    this.down = false;
    this.showCursor();
  }

  /** Shows a picture, an image element, in place of what was drawn. */
  show(picture) {
    this.clear();
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(picture, 0, 0, this.side, this.side);
  }

  /** What is drawn: Float32Array [side * side] in [0, 1]. */
  ink() {
    const pixels = this.context.getImageData(0, 0, this.side, this.side).data;
    return Float32Array.from({ length: this.side ** 2 }, (_, index) => pixels[4 * index] / 255);
  }

  start(event) {
    if (event.button || !event.isPrimary) return; // the left button, the first finger
    this.canvas.setPointerCapture(event.pointerId);
    this.drawing = true;
    this.position = this.placeOf(event);
    this.line(this.position);
  }

  move(event) {
    if (!this.drawing || !event.isPrimary) return;
    // A browser reports once per frame; the points between make a curve round.
    const between = event.getCoalescedEvents?.() ?? [];
    for (const point of between.length ? between : [event]) this.line(this.placeOf(point));
  }

  press(event) {
    if (event.key === " ") {
      this.down = !this.down;
      if (this.down) this.line(this.position);
    } else if (event.key in ARROWS) {
      const to = this.position.map((value, axis) =>
        Math.min(Math.max(value + STEP * ARROWS[event.key][axis], 0), this.side),
      );
      if (this.down) this.line(to);
      this.position = to;
    } else return;
    event.preventDefault(); // the page would scroll
    this.showCursor();
  }

  line(to) {
    const context = this.context;
    context.strokeStyle = "white";
    context.lineWidth = WIDTH;
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(...this.position);
    context.lineTo(...to);
    context.stroke();
    this.position = to;
    this.changed();
  }

  placeOf(event) {
    const box = this.canvas.getBoundingClientRect();
    const scale = this.side / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  }

  showCursor() {
    const [left, top] = this.position.map((value) => `${(100 * value) / this.side}%`);
    Object.assign(this.cursor.style, { left, top });
    this.cursor.classList.toggle("demo-down", this.down);
  }
}
