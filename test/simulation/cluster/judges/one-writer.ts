import { assert } from '../../../../base/assert.ts';

/** Bytes as latin1; null if the name does not exist. */
export type Contents = string | null;

/** What the judge needs of a run. */
export interface OneWriterRun {
  nowNs(): number;
  violation(text: string): void;
  /** When all servers lost their power. */
  readonly lossesNs: readonly number[];
  /** A sync of a program has returned. */
  synced?(): void;
}

/** How a change becomes visible. */
export interface ChangeKind {
  /** Readers see it as a whole: a rename, an unlink. Otherwise they may see parts of it while it is in progress. */
  readonly isAtomic?: boolean;
  /**
   * Whether, at this true time, the mount may have acknowledged it before the cluster has it, and may still drop it; a
   * sync of the name ends that.
   */
  readonly isAhead?: (atNs: number) => boolean;
  /** The contents were synced before they got the name, so that a sync of the name is all they need. */
  readonly hasSyncedContents?: boolean;
  /** When the first write of the contents began that got the name by this change, if they were not synced before. */
  readonly writtenNs?: number;
  /**
   * It keeps the rest of the contents, which is of an earlier version if a loss of power has removed others meanwhile.
   */
  readonly isPart?: boolean;
  /**
   * The file loses its name, and is changed further without it: a reader that opened it before reads these changes,
   * too.
   */
  readonly isOpen?: boolean;
}

/** A change in progress. One that fails may take effect at any time, or in parts. */
export interface Change {
  /** @param contents if they are known only at the end */
  done(contents?: Contents): void;
  failed(): void;
}

interface Version {
  /** Undefined until it is known. */
  contents: Contents | undefined;
  readonly calledNs: number;
  readonly kind: ChangeKind;
  returnedNs: number;
  hasFailed: boolean;
  /** When a sync of the contents, or of the name, returned that was called after the change. */
  contentsSyncedNs: number;
  nameSyncedNs: number;
}

/**
 * A file that one program changes and any program reads: a regular register whose versions are in the order of their
 * changes, and atomic for reads that follow each other. Judges each read at once.
 */
export class OneWriterFile {
  readonly name: string;
  readonly #run: OneWriterRun;
  readonly #versions: Version[];
  /** The newest versions that reads have shown, with the end of each read. */
  readonly #seen: { readonly returnedNs: number; readonly index: number; readonly isGone: () => boolean }[] =
    [];

  constructor(name: string, run: OneWriterRun) {
    this.name = name;
    this.#run = run;
    this.#versions = [
      {
        ...{ contents: null, calledNs: -1, returnedNs: -1, kind: {}, hasFailed: false },
        ...{ contentsSyncedNs: -1, nameSyncedNs: -1 },
      },
    ];
  }

  /** A change is in progress or has failed: the writer does not know the contents. */
  get isUncertain(): boolean {
    return this.#versions.at(-1)?.returnedNs === Number.POSITIVE_INFINITY;
  }

  /** A change is called. @param contents undefined if they are only known at its end; the name exists then */
  begin(contents: Contents | undefined, kind: ChangeKind = {}): Change {
    assert(!this.isUncertain, `${this.name}: one change at a time`);
    const version: Version = {
      ...{ contents, calledNs: this.#run.nowNs(), kind, returnedNs: Number.POSITIVE_INFINITY },
      ...{ hasFailed: false, contentsSyncedNs: Number.POSITIVE_INFINITY },
      nameSyncedNs: Number.POSITIVE_INFINITY,
    };
    this.#versions.push(version);
    return {
      done: (known = contents) => {
        version.contents = known;
        version.returnedNs = this.#run.nowNs();
      },
      failed: () => {
        version.hasFailed = true;
      },
    };
  }

  /** A sync has returned 0 that was called after the end of all changes that have ended now. */
  synced(what: 'contents' | 'name'): void {
    const nowNs = this.#run.nowNs();
    for (const version of this.#versions) {
      if (version.returnedNs === Number.POSITIVE_INFINITY) continue;
      const hasContents = what === 'contents' || version.kind.hasSyncedContents === true;
      version.nameSyncedNs = Math.min(version.nameSyncedNs, nowNs);
      if (hasContents) version.contentsSyncedNs = Math.min(version.contentsSyncedNs, nowNs);
    }
    this.#run.synced?.();
  }

  /**
   * A read that was called at `calledNs` has returned.
   *
   * @param slackNs by how much an answer may be outdated
   * @param isGone whether an unstored version that was read may be lost: the mount that changed and read it has ended
   * since
   */
  read(
    reader: string,
    calledNs: number,
    contents: Contents,
    slackNs = 0,
    isGone: () => boolean = () => false,
  ): void {
    const fromNs = calledNs - slackNs;
    const nowNs = this.#run.nowNs();
    const low = this.#lowest(fromNs, nowNs);
    const open = this.#versions.slice(low);
    const index = open.findIndex((version) => version.contents === contents);
    if (index >= 0) {
      this.#seen.push({ returnedNs: nowNs, index: low + index, isGone });
      return;
    }
    const isPartial = open.some((_, place) => this.#mayBePartial(low + place, fromNs, nowNs));
    if (isPartial && !this.#contradictsName(contents === null, low, fromNs)) return;
    this.#refuse(`${reader} reads ${shown(contents)}`, calledNs, open);
  }

  /** A query of the name's existence that was called at `calledNs` has returned. */
  presence(reader: string, calledNs: number, isThere: boolean, slackNs = 0): void {
    const fromNs = calledNs - slackNs;
    const nowNs = this.#run.nowNs();
    const low = this.#lowest(fromNs, nowNs);
    const open = this.#versions.slice(low);
    if (open.some(({ contents }) => (contents !== null) === isThere)) return;
    if (open.some((_, place) => this.#mayBePartial(low + place, fromNs, nowNs))) return;
    this.#refuse(`${reader} finds ${isThere ? 'the name' : 'no such name'}`, calledNs, open);
  }

  /** @returns the index of the earliest version that a read may show */
  #lowest(fromNs: number, nowNs: number): number {
    const firm = this.#versions.findLastIndex((version) => this.#isFirm(version, fromNs, nowNs));
    const seen = this.#seen.filter(
      ({ returnedNs, index, isGone }) =>
        returnedNs < fromNs && !this.#lossBetween(returnedNs, nowNs) && !(this.#isUnended(index) && isGone()),
    );
    return Math.max(firm, ...seen.map(({ index }) => index));
  }

  /** @returns whether the change has failed, or is in progress: a mount may not have stored it */
  #isUnended(index: number): boolean {
    return this.#versions[index]?.returnedNs === Number.POSITIVE_INFINITY;
  }

  #refuse(what: string, calledNs: number, open: readonly Version[]): void {
    const expected = open.map(describe).join('; ');
    this.#run.violation(
      `${this.name}: ${what} from ${ms(calledNs)} to ${ms(this.#run.nowNs())}, and there may be: ${expected}`,
    );
  }

  /** @returns whether readers may see contents that are no version */
  #mayBePartial(index: number, fromNs: number, nowNs: number): boolean {
    const version = this.#versions[index] as Version;
    const { kind, returnedNs, contentsSyncedNs } = version;
    if (this.#mayLackOthers(index, fromNs, nowNs)) return true;
    // A program that reads in several calls may see a part of it between two of them.
    if ((kind.isPart === true || kind.isOpen === true) && returnedNs >= fromNs) return true;
    if (kind.isAtomic !== true) return returnedNs >= fromNs || this.#mayBeLost(version, fromNs, nowNs);
    if (kind.writtenNs === undefined || contentsSyncedNs < fromNs) return false;
    return this.#lossBetween(kind.writtenNs, Math.min(nowNs, contentsSyncedNs));
  }

  /** @returns whether a loss of power before the end of the change may have removed earlier unsynced changes */
  #mayLackOthers(index: number, fromNs: number, nowNs: number): boolean {
    const [before, version] = [this.#versions[index - 1], this.#versions[index]];
    if (before === undefined || version?.kind.isPart !== true) return false;
    const untilNs = Math.min(nowNs, version.returnedNs);
    return this.#mayBeLost(before, fromNs, untilNs) || this.#mayLackOthers(index - 1, fromNs, untilNs);
  }

  /** @returns whether no later read may show an earlier version */
  #isFirm(version: Version, fromNs: number, nowNs: number): boolean {
    if (version.returnedNs >= fromNs) return false;
    if (version.nameSyncedNs >= fromNs && version.kind.isAhead?.(fromNs) === true) return false;
    return !this.#mayBeLost(version, fromNs, nowNs);
  }

  /** @returns whether all servers lost their power, and no sync that was called after the change has returned */
  #mayBeLost(
    { calledNs, contents, contentsSyncedNs, nameSyncedNs }: Version,
    fromNs: number,
    nowNs: number,
  ): boolean {
    const syncedNs = contents === null ? nameSyncedNs : contentsSyncedNs;
    return syncedNs >= fromNs && this.#lossBetween(calledNs, Math.min(nowNs, syncedNs));
  }

  #lossBetween(fromNs: number, untilNs: number): boolean {
    return this.#run.lossesNs.some((atNs) => atNs >= fromNs && atNs <= untilNs);
  }

  /** The existence of a synced name is certain, unless a later change concerns it. */
  #contradictsName(isAbsent: boolean, low: number, fromNs: number): boolean {
    const named = this.#versions.findLastIndex(({ nameSyncedNs }) => nameSyncedNs < fromNs);
    const madeNs = this.#versions[1]?.calledNs ?? 0;
    if (named <= 0 && this.#lossBetween(madeNs, this.#run.nowNs())) return false;
    const known = this.#versions.slice(Math.max(named, low));
    return known.every(({ contents }) => contents !== undefined && (contents === null) !== isAbsent);
  }
}

function describe({ contents, calledNs, returnedNs, hasFailed, contentsSyncedNs }: Version): string {
  const isOver = returnedNs < Number.POSITIVE_INFINITY;
  const end = hasFailed ? 'failed' : isOver ? `to ${ms(returnedNs)}` : 'under way';
  const isSynced = contentsSyncedNs < Number.POSITIVE_INFINITY && contents !== null;
  const synced = isSynced ? `, synced ${ms(contentsSyncedNs)}` : '';
  return `${shown(contents)} (from ${ms(calledNs)} ${end}${synced})`;
}

function ms(ns: number): string {
  return `${(ns / 1e6).toFixed(3)} ms`;
}

function shown(contents: Contents | undefined): string {
  if (contents === undefined) return 'something';
  if (contents === null) return 'no such name';
  return JSON.stringify(
    contents.length <= 40 ? contents : `${contents.slice(0, 30)}… ${contents.length} bytes`,
  );
}
