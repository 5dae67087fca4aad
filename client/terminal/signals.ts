import { systemWorld } from '../../world/system-world.ts';
/** Waits for SIGINT or SIGTERM as a request to end; further ones during the end change nothing. */
export class EndSignal {
  readonly #controller = new AbortController();
  readonly #onSignal = (signal: NodeJS.Signals) => this.#controller.abort(signal);

  constructor() {
    process.on('SIGINT', this.#onSignal).on('SIGTERM', this.#onSignal);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Resolves at the first signal. Keeps the process alive until then. */
  wait(): Promise<void> {
    if (this.signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const keepAlive = systemWorld.every(1 << 30, () => {});
      this.signal.addEventListener('abort', () => {
        keepAlive.cancel();
        resolve();
      });
    });
  }

  [Symbol.dispose](): void {
    process.off('SIGINT', this.#onSignal).off('SIGTERM', this.#onSignal);
  }
}
