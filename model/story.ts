import type { ModelName } from './variants.ts';

const SERVERS = ['a', 'b', 'c'];
const HOLDERS = ['nobody', 'a', 'b', 'an earlier life of a', 'an earlier life of b'];

/**
 * Prints a run step by step. The model identifies attempts by their ballots' ranks, which shift, and moves its time
 * origin; here attempts are numbered from their start, and time increases.
 */
export class Story {
  readonly #lines: string[] = [];
  /** Attempts by ballot, smallest first. */
  readonly #attempts: string[] = [];
  #begun = 0;
  #passed = 0;
  /** Clock readings since the last line. */
  #clocks = new Map<string, number>();

  /** @returns the story of the lines that a model printed */
  static tell(model: ModelName, steps: readonly string[]): string[] {
    const story = new Story();
    for (const step of steps) {
      const [kind = '', ...rest] = step.trim().split(' ');
      const figures = rest.map(Number);
      if (model === 'flease') story.#flease(kind, figures);
      else story.#paxosLease(kind, figures);
    }
    story.#flush();
    return story.#lines;
  }

  #flease(
    kind: string,
    [first = 0, second = 0, third = 0, fourth = 0, fifth = 0, sixth = 0]: number[],
  ): void {
    const server = SERVERS[first];
    const at = (time: number): number => time + this.#passed;
    switch (kind) {
      case 'tick':
        this.#clocks.set(SERVERS[first] ?? '', at(second));
        break;
      case 'back':
        this.#passed += first;
        break;
      case 'drop':
        this.#attempts.shift();
        break;
      case 'start':
        this.#begin(first, second, ` in interval ${third}, t0 = ${at(fourth)}`);
        break;
      case 'read': {
        const found = fourth === 0 ? 'nothing written' : `${this.#name(fourth)}: ${lease(fifth, at(sixth))}`;
        this.#say(`${SERVERS[second]} acknowledges READ of ${this.#name(third)} and tells of ${found}`);
        break;
      }
      case 'look':
        this.#say(`${server} looks at its clock, ${at(second)}, whether what it found is valid`);
        break;
      case 'acquire':
        this.#say(
          `${server}, clock ${at(fourth)}, finds the cell free and writes a lease of its own until ${at(third)}`,
        );
        break;
      case 'renew':
        this.#say(`${server}, clock ${at(fourth)}, finds its own lease and writes it until ${at(third)}`);
        break;
      case 'help':
        this.#say(`${server}, clock ${at(fifth)}, finds ${lease(third, at(fourth))}, and writes it back`);
        break;
      case 'write':
        this.#say(`${SERVERS[second]} accepts WRITE of ${this.#name(first)}: ${lease(third, at(fourth))}`);
        break;
      case 'decide':
        this.#say(`${server} hears of a majority: decided is ${lease(third, at(fourth))}`);
        break;
      case 'owns':
        this.#say(`${server} HOLDS until ${at(second)}; its clock shows ${at(third)}`);
        break;
      case 'expired':
        this.#say(`${server} stops holding`);
        break;
      case 'restart':
        this.#say(`${server} restarts with clock ${at(second)} and keeps silent until ${at(third)}`);
        break;
      case 'recovered':
        this.#say(`${server} takes part again`);
        break;
      default:
        throw new RangeError(`No story has a step "${kind}"`);
    }
  }

  #paxosLease(kind: string, [first = 0, second = 0, third = 0, fourth = 0]: number[]): void {
    const server = SERVERS[first];
    switch (kind) {
      case 'time':
        this.#passed++;
        this.#clocks.set('true time', this.#passed);
        break;
      case 'start':
        this.#begin(first, second, '');
        break;
      case 'prepare': {
        const told = fourth === 0 ? 'nothing that runs' : `a lease of ${HOLDERS[fourth]}`;
        this.#say(`${SERVERS[second]} answers PREPARE of ${this.#name(third)} with ${told}`);
        break;
      }
      case 'propose':
        this.#say(`${server} has a majority and proposes ${third === 0 ? 'a lease' : 'to extend its lease'}`);
        break;
      case 'accept':
        this.#say(`${SERVERS[second]} accepts PROPOSE of ${this.#name(first)} by ${HOLDERS[third]}`);
        break;
      case 'owns':
        this.#say(`${server} HOLDS until ${this.#passed + second}`);
        break;
      case 'restart':
        this.#say(`${server} restarts and keeps silent until ${this.#passed + second}`);
        break;
      default:
        throw new RangeError(`No story has a step "${kind}"`);
    }
  }

  #begin(proposer: number, rank: number, when: string): void {
    this.#begun++;
    const name = `attempt ${this.#begun}`;
    const above = this.#attempts[rank - 1];
    this.#attempts.splice(rank - 1, 0, name);
    const order = above === undefined ? '' : `, its ballot below that of ${above}`;
    this.#say(`${SERVERS[proposer]} begins ${name}${when}${order}`);
  }

  #name(rank: number): string {
    return this.#attempts[rank - 1] ?? `ballot ${rank}`;
  }

  #say(line: string): void {
    this.#flush();
    this.#lines.push(line);
  }

  #flush(): void {
    if (this.#clocks.size === 0) return;
    const readings = [...this.#clocks].map(([clock, time]) => `${clock} ${time}`).join(', ');
    this.#lines.push(`    time passes: ${readings}`);
    this.#clocks = new Map();
  }
}

function lease(holder: number, until: number): string {
  return holder === 0 ? 'a lease that is over' : `the lease of ${HOLDERS[holder]} until ${until}`;
}
