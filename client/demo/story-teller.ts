import type { ActState, DevControl, Story } from '../dev/dev-control.ts';

export interface ActReport {
  readonly title: string;
  readonly state: ActState;
  readonly lines: readonly string[];
}

/**
 * Called before each act; resolves when it may begin, told by `next` where somebody at a dashboard says so.
 *
 * @param mayPlay all servers are there: people may do to them what they like
 */
export type BeforeAct = (title: string, next: Promise<void>, mayPlay: boolean) => Promise<void>;

export interface StoryParts {
  readonly control: Pick<DevControl, 'tell' | 'next'>;
  /** Tells people in the terminal. */
  readonly say: (text: string) => void;
  readonly beforeAct: BeforeAct;
  /** Whether anybody waits between acts. */
  readonly waits: boolean;
}

/** Plays acts one after the other, and tells the terminal and the dashboard what they say. */
export class StoryTeller {
  readonly #parts: StoryParts;
  readonly #acts: { readonly title: string; state: ActState; readonly lines: string[] }[];
  #waits = false;

  /** @param titles of all acts, so that people see what is to come */
  constructor(titles: readonly string[], parts: StoryParts) {
    this.#parts = parts;
    this.#acts = titles.map((title) => ({ title, state: 'to-come', lines: [] }));
    this.#tell();
  }

  get reports(): readonly ActReport[] {
    return this.#acts;
  }

  /** Says something in the act that is played now. */
  readonly say = (text: string): void => {
    this.#parts.say(text);
    const now = this.#acts.find(({ state }) => state === 'now');
    if (now === undefined) return;
    now.lines.push(text.trim());
    this.#tell();
  };

  async act<Value>(title: string, play: () => Promise<Value>, mayPlay = true): Promise<Value> {
    const act = this.#acts.find((one) => one.title === title);
    if (act === undefined) throw new RangeError(`The story has no act "${title}"`);
    await this.#wait(title, mayPlay);
    act.state = 'now';
    this.#parts.say(`— ${title}`);
    this.#tell();
    try {
      const value = await play();
      act.state = 'done';
      return value;
    } catch (error) {
      act.state = 'failed';
      throw error;
    } finally {
      this.#tell();
    }
  }

  async #wait(title: string, mayPlay: boolean): Promise<void> {
    if (!this.#parts.waits) return;
    this.#waits = true;
    this.#tell();
    await this.#parts.beforeAct(title, this.#parts.control.next(), mayPlay);
    this.#waits = false;
  }

  #tell(): void {
    const story: Story = { acts: this.#acts, waits: this.#waits };
    this.#parts.control.tell(story);
  }
}
