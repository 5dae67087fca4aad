/** Mode, owner and modification time of one unpacked file, as programs of all clients set and see them. */

/**
 * How much later clients see attributes that a mount buffers, if they recall nothing: its delay and the ways of two
 * answers.
 */
const KEPT_NS = 250e6 + 50e6;
/** The program that unpacks a file closes it within this time, unless a fault delays its requests. */
const SOON_NS = 400e6;
/** An incident may have an effect for so long. */
const INCIDENT_NS = 10e9;

export const REGISTERS = ['mode', 'uid', 'modified'] as const;
export type Register = (typeof REGISTERS)[number];
export type Seen = Readonly<Partial<Record<Register, number>>>;

/** The client of a program: all programs of a mount share one. */
export interface Viewer {
  readonly name: string;
  /** Answers of its mount may be as old as this; null: its queries recall what other mounts buffer. */
  readonly ttlNs: number | null;
}

interface Change {
  readonly value: number;
  readonly by: Viewer;
  readonly calledNs: number;
  /** Infinite while the outcome is unknown. */
  answeredNs: number;
}

interface Look {
  readonly seen: Seen;
  readonly by: Viewer;
  readonly calledNs: number;
  /** When the file had its contents for the same program, which read them before. */
  readonly readNs: number | null;
}

export interface ArchivedRun {
  nowNs(): number;
  violation(text: string): void;
  /** When faults began, in nanoseconds of true time. */
  incidentsNs(): readonly number[];
}

/** Each value is set once, so that a value that a program sees identifies the change. */
export class ArchivedFile {
  path: string;
  readonly inode: number;
  readonly by: Viewer;
  readonly #run: ArchivedRun;
  readonly #changes: Readonly<Record<Register, Change[]>>;
  readonly #looks: Look[] = [];
  #committedNs = Number.POSITIVE_INFINITY;
  #isLost = false;

  /** @param initial a modification time that no program has set counts as the first one */
  constructor(
    run: ArchivedRun,
    created: {
      readonly path: string;
      readonly inode: number;
      readonly by: Viewer;
      readonly calledNs: number;
    },
    initial: Readonly<Record<Register, number>>,
  ) {
    const { path, inode, by, calledNs } = created;
    this.path = path;
    this.inode = inode;
    this.by = by;
    this.#run = run;
    const first = (register: Register): Change[] => [
      { value: initial[register], by, calledNs, answeredNs: run.nowNs() },
    ];
    this.#changes = { mode: first('mode'), uid: first('uid'), modified: first('modified') };
  }

  /** A call that sets a value begins. @returns a function to call when it has succeeded */
  begin(register: Register, value: number, by: Viewer): () => void {
    const [calledNs, answeredNs] = [this.#run.nowNs(), Number.POSITIVE_INFINITY];
    const change: Change = { value, by, calledNs, answeredNs };
    this.#changes[register].push(change);
    return () => {
      change.answeredNs = this.#run.nowNs();
    };
  }

  /** The creating program has synced or closed the file. */
  committed(): void {
    this.#committedNs = Math.min(this.#committedNs, this.#run.nowNs());
  }

  /** A call on its descriptor has failed: what was acknowledged before may be lost. */
  lost(): void {
    this.#isLost = true;
  }

  looked(by: Viewer, calledNs: number, seen: Seen, readNs: number | null): void {
    this.#looks.push({ by, calledNs, seen, readNs });
  }

  judge(): void {
    for (const look of this.#looks) for (const register of REGISTERS) this.#judge(look, register);
  }

  #judge(look: Look, register: Register): void {
    const value = look.seen[register];
    if (value === undefined) return;
    const changes = this.#changes[register];
    const found = changes.find((change) => change.value === value);
    const seen = found ?? (register === 'modified' ? changes[0] : undefined);
    const what = `${this.path} (${this.inode}): ${look.by.name} sees ${register} ${value}`;
    if (seen === undefined) {
      this.#run.violation(`${what}, which no program has set`);
      return;
    }
    const newer = changes.find((change) => change.calledNs > seen.answeredNs && this.#mustShow(change, look));
    if (newer === undefined) return;
    const { calledNs, answeredNs, by } = newer;
    this.#run.violation(
      `${what} by a call at ${look.calledNs}, and ${by.name} has set ${newer.value} by a call from ${calledNs} to ${answeredNs}`,
    );
  }

  /** @returns whether a look must show this change, or a later one */
  #mustShow(change: Change, { by, calledNs, readNs }: Look): boolean {
    const { answeredNs } = change;
    const isKept = change.by === this.by && change.calledNs < this.#committedNs;
    if (isKept && (this.#isLost || this.#committedNs === Number.POSITIVE_INFINITY)) return false;
    const isOwn = change.by === by;
    const slackNs = isOwn || by.ttlNs === null ? 0 : by.ttlNs + KEPT_NS;
    // Contents arrive after the attributes that were set before.
    if (readNs !== null && answeredNs + slackNs < readNs) return true;
    const isDelayed =
      isKept && this.#committedNs - answeredNs > SOON_NS && this.#isTroubled(answeredNs, calledNs);
    // A mount whose cache session has ended shows what it buffers until it learns the outcome.
    const isBehind = by === this.by && calledNs < this.#committedNs && this.#isTroubled(answeredNs, calledNs);
    if (isBehind && !isOwn) return false;
    return (isDelayed && !isOwn ? this.#committedNs : answeredNs) + slackNs < calledNs;
  }

  #isTroubled(fromNs: number, toNs: number): boolean {
    return this.#run.incidentsNs().some((atNs) => atNs > fromNs - INCIDENT_NS && atNs < toNs);
  }
}
