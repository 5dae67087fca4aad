/**
 * What a server of a system simulation does about objects of the file that rot on its disk, as the servers' stores do
 * it: bytes that do not match their checksum are never used; the same version is asked of the others, and what nobody
 * has is an error. Calls between servers happen at once here, where the network lets them.
 */
import { assert } from '../../base/assert.ts';
import type { ServerId } from '../../base/ids.ts';
import type { Operation } from '../../replica/operation.ts';
import type { Trust } from '../../replica/record.ts';
import { viewVoters } from '../../replica/view.ts';
import type { ObjectEntry } from '../../server/storage/object-entry.ts';
import { FileContents } from './system-file.ts';
import type { SystemWorld } from './system-world.ts';

/** How often something happened that runs with rot are for. */
export interface RotCounts {
  rotted: number;
  /** Objects whose bytes came from another replica. */
  mended: number;
  /** Reads that were answered after that, and those that failed because nobody in reach had the object whole. */
  mendedReads: number;
  integrityReads: number;
  /** Reads of what nobody has whole any more. */
  lostReads: number;
  /** Objects of which one copy was brought back by hand. */
  restored: number;
  /** Objects that rotted on all disks at once, and on all but one. */
  rottedEverywhere: number;
  rottedButOne: number;
  /** Operations that needed a damaged object that another replica had, and those that nobody could help. */
  mendedApplies: number;
  integrityApplies: number;
  /** Replicas that began anew as damaged. */
  damagedStarts: number;
  /** Damaged replicas to which another's state brought the object. */
  damagedReplaced: number;
  /** Objects that a fetch found damaged at its source, and those of them that it found nowhere. */
  damagedSources: number;
  integrityFetches: number;
  /** Objects of another state that nobody had whole, taken over without their bytes. */
  lostTakenOver: number;
  scrubbed: number;
  /** Objects of what is preserved for snapshots, and those of them whose bytes came from another server. */
  rottedPreserved: number;
  mendedPreserved: number;
}

export function rotCountsNone(): RotCounts {
  return {
    rotted: 0,
    mended: 0,
    mendedReads: 0,
    integrityReads: 0,
    lostReads: 0,
    restored: 0,
    rottedEverywhere: 0,
    rottedButOne: 0,
    mendedApplies: 0,
    integrityApplies: 0,
    damagedStarts: 0,
    damagedReplaced: 0,
    damagedSources: 0,
    integrityFetches: 0,
    lostTakenOver: 0,
    scrubbed: 0,
    rottedPreserved: 0,
    mendedPreserved: 0,
  };
}

/** One life of a server, as far as damaged objects are concerned. */
export class ObjectCare {
  readonly #system: SystemWorld;
  readonly #id: ServerId;
  /** Own objects that could not be put right, as far as somebody met them. */
  readonly #damaged = new Set<number>();

  constructor(system: SystemWorld, id: ServerId) {
    this.#system = system;
    this.#id = id;
  }

  get #counts(): RotCounts {
    return this.#system.troubles.rot;
  }

  get #contents(): FileContents | null {
    const contents = this.#system.disks.get(this.#id)?.contents;
    return contents instanceof FileContents ? contents : null;
  }

  trust(trust: Trust): Trust {
    if (trust !== 'intact' || this.#damaged.size === 0) return trust;
    this.#counts.damagedStarts++;
    return 'damaged';
  }

  /** @returns whether the bytes that the operation needs are there, or were found elsewhere */
  mayApply(operation: Operation): boolean {
    const contents = this.#contents;
    const needed = contents?.neededBy(operation).filter((index) => contents.isDamaged(index)) ?? [];
    const lost = needed.filter((index) => !this.#mend(index));
    for (const index of lost) this.#damaged.add(index);
    this.#counts.mendedApplies += needed.length - lost.length;
    this.#counts.integrityApplies += lost.length;
    return lost.length === 0;
  }

  /** @returns whether everything that the answer shows is whole, or was found elsewhere */
  mayShow(what: string): boolean {
    const contents = this.#contents;
    const damaged = contents?.shownBy(what).filter((index) => contents.isDamaged(index)) ?? [];
    if (damaged.length === 0) return true;
    const isWhole = damaged.every((index) => this.#mend(index));
    if (isWhole) this.#counts.mendedReads++;
    else this.#counts.integrityReads++;
    return isWhole;
  }

  /** Reads everything here, and puts right what can be. */
  scrub(): void {
    const contents = this.#contents;
    for (const index of contents?.indices ?? []) {
      if (contents?.isDamaged(index) === true && this.#mend(index)) this.#counts.scrubbed++;
    }
  }

  /** @returns the bytes of exactly this object, from the disk or from another replica; null where nobody has it whole */
  serve(entry: ObjectEntry): Uint8Array | null {
    const contents = this.#contents;
    const own = contents?.soundBytes(entry) ?? null;
    if (own !== null || contents === null) return own;
    if (!contents.has(entry)) return null;
    this.#counts.damagedSources++;
    if (this.#mend(entry.index)) return contents.soundBytes(entry);
    this.#damaged.add(entry.index);
    return null;
  }

  /**
   * What is here after another replica's state was fetched: own objects where both have the same, and are not known
   * to be damaged here; all others come from the source, or from anybody who has them.
   *
   * One that no member of the view has whole is taken over as lost.
   *
   * @returns null where nobody in reach has one of them whole that somebody else may have
   */
  takeOver(from: ServerId, fetched: FileContents): FileContents | null {
    const own = this.#contents;
    assert(own !== null, 'A file is taken over from a file');
    const state = fetched.copy();
    // What is not fetched is what lies here, rotten or not.
    const isKept = (index: number): boolean => !this.#damaged.has(index);
    state.keepBytesOf(own, isKept);
    for (const index of state.indices) {
      const entry = state.entry(index) as ObjectEntry;
      if (own.has(entry) && isKept(index)) continue;
      const bytes = fetched.soundBytes(entry) ?? this.#fetch(from, entry);
      if (bytes !== null) {
        state.repair(entry, bytes);
        continue;
      }
      // Only who was asked can have said that it has not got it.
      if (![from, ...this.#others()].every((server) => this.#reaches(server))) {
        this.#counts.integrityFetches++;
        return null;
      }
      this.#counts.lostTakenOver++;
      state.lose(index);
    }
    this.#counts.damagedReplaced += this.#damaged.size;
    return state;
  }

  /** Another's state is here, with everything that was known to be damaged. */
  tookOver(): void {
    this.#damaged.clear();
  }

  #fetch(from: ServerId, entry: ObjectEntry): Uint8Array | null {
    for (const server of [from, ...this.#others().filter((other) => other !== from)]) {
      const bytes = this.#reaches(server) ? this.#system.process(server).care.serve(entry) : null;
      if (bytes !== null) return bytes;
    }
    return null;
  }

  /** @returns whether the object is whole now */
  #mend(index: number): boolean {
    const contents = this.#contents;
    const entry = contents?.entry(index) ?? null;
    if (contents === null || entry === null) return false;
    for (const server of this.#others()) {
      const theirs = this.#system.disks.get(server)?.contents;
      const bytes = this.#reaches(server) && theirs instanceof FileContents ? theirs.soundBytes(entry) : null;
      if (bytes === null) continue;
      contents.repair(entry, bytes);
      this.#damaged.delete(index);
      this.#counts.mended++;
      return true;
    }
    return false;
  }

  #others(): ServerId[] {
    const view = this.#system.disks.get(this.#id)?.record.view;
    return view === undefined ? [] : viewVoters(view).filter((server) => server !== this.#id);
  }

  #reaches(server: ServerId): boolean {
    const { world } = this.#system;
    if (!world.isUp(server) || world.isPaused(server)) return false;
    return this.#system.reaches(this.#id, server) && this.#system.reaches(server, this.#id);
  }
}
