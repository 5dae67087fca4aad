import { executeOrder } from '../dev/dev-control.ts';
import type { Stage } from './stage.ts';

const CTRL_C = '\u0003';
const PATH = '/journal';

export function keysText(mayDisturb: boolean): string {
  return mayDisturb
    ? `Enter continues; k kills, p pauses, c disconnects the primary of ${PATH}; r restores all servers`
    : 'Enter continues';
}

export class Keys {
  readonly #stage: Stage;
  readonly #say: (text: string) => void;
  readonly #mayDisturb: boolean;

  constructor(stage: Stage, say: (text: string) => void, mayDisturb: boolean) {
    this.#mayDisturb = mayDisturb;
    this.#stage = stage;
    this.#say = say;
  }

  /** Handles keys until the user continues, here or by `next`; then restores the servers if keys disturbed some. */
  async wait(next: Promise<void>, signal: AbortSignal): Promise<void> {
    const { stdin } = process;
    stdin.setRawMode(true);
    stdin.resume();
    stdin.setEncoding('utf8');
    let hasDisturbed = false;
    const enter = Promise.withResolvers<void>();
    const onKey = (key: string): void => {
      // In raw mode a terminal sends the key and not the signal.
      if (key === CTRL_C || key === 'q') process.kill(process.pid, 'SIGINT');
      else if (key === '\r' || key === '\n') enter.resolve();
      else if (this.#mayDisturb) {
        hasDisturbed = true;
        this.#disturb(key).catch((error: unknown) => this.#say(String(error)));
      }
    };
    const onAbort = (): void => enter.resolve();
    stdin.on('data', onKey);
    signal.addEventListener('abort', onAbort);
    try {
      await Promise.race([enter.promise, next]);
    } finally {
      stdin.off('data', onKey);
      signal.removeEventListener('abort', onAbort);
      stdin.setRawMode(false);
      stdin.pause();
    }
    if (hasDisturbed && !signal.aborted) await this.#stage.restoreServers();
  }

  async #disturb(key: string): Promise<void> {
    if (key === 'r') {
      this.#say('  all servers are restored');
      await this.#stage.restoreServers();
      return;
    }
    const order = ({ k: 'kill', p: 'pause', c: 'cut' } as const)[key];
    if (order === undefined) return;
    const primary = await this.#stage.primaryOf(PATH);
    this.#say(`  ${order} of ${primary.plan.id}, the primary of ${PATH}`);
    await executeOrder(primary, order);
  }
}
