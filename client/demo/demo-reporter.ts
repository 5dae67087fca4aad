import type { ActState, DemoProgress, DevControl } from '../dev/dev-control.ts';

export interface ActReport {
  readonly title: string;
  readonly state: ActState;
  readonly lines: readonly string[];
}

/** `next` resolves when a user at the dashboard continues. @param mayDisturb users may disturb the servers */
export type BeforeAct = (title: string, next: Promise<void>, mayDisturb: boolean) => Promise<void>;

export interface DemoReporterParts {
  readonly control: Pick<DevControl, 'publish' | 'next'>;
  readonly say: (text: string) => void;
  readonly beforeAct: BeforeAct;
  readonly waits: boolean;
}

/** Plays acts one after the other, and shows their messages in the terminal and at the dashboard. */
export class DemoReporter {
  readonly #parts: DemoReporterParts;
  readonly #acts: { readonly title: string; state: ActState; readonly lines: string[] }[];
  #waits = false;

  constructor(titles: readonly string[], parts: DemoReporterParts) {
    this.#parts = parts;
    this.#acts = titles.map((title) => ({ title, state: 'to-come', lines: [] }));
    this.#publish();
  }

  get reports(): readonly ActReport[] {
    return this.#acts;
  }

  readonly say = (text: string): void => {
    this.#parts.say(text);
    const now = this.#acts.find(({ state }) => state === 'now');
    if (now === undefined) return;
    now.lines.push(text.trim());
    this.#publish();
  };

  async act<Value>(title: string, run: () => Promise<Value>, mayDisturb = true): Promise<Value> {
    const act = this.#acts.find((one) => one.title === title);
    if (act === undefined) throw new RangeError(`The story has no act "${title}"`);
    await this.#wait(title, mayDisturb);
    act.state = 'now';
    this.#parts.say(`— ${title}`);
    this.#publish();
    try {
      const value = await run();
      act.state = 'done';
      return value;
    } catch (error) {
      act.state = 'failed';
      throw error;
    } finally {
      this.#publish();
    }
  }

  async #wait(title: string, mayDisturb: boolean): Promise<void> {
    if (!this.#parts.waits) return;
    this.#waits = true;
    this.#publish();
    await this.#parts.beforeAct(title, this.#parts.control.next(), mayDisturb);
    this.#waits = false;
  }

  #publish(): void {
    const story: DemoProgress = { acts: this.#acts, waits: this.#waits };
    this.#parts.control.publish(story);
  }
}
