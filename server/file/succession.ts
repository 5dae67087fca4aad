import type { Logger } from 'pino';
import type { FileId, ServerId } from '../../base/ids.ts';
import { readFileId } from '../../replica/codec.ts';
import { ByteReader, ByteWriter, MalformedError } from '../../wire/bytes.ts';
import type { ReplicaDriver } from '../replica-driver.ts';

/** The call by which a primary that is about to let go of files asks another of their servers to be the next. */
export const SUCCEED_CALL = 'succeed';

/** The call by which a server that is about to let go of files asks the others to have nothing unsynced that delays a promise. */
export const PREPARE_CALL = 'prepare-succession';

/** Longest that an end waits until successors lead. */
export const SUCCESSION_MS_MAX = 500;
const CALL_MS = 1_000;
/** Longest that a primary waits until the others have prepared for its end. */
const PREPARE_MS = 250;
/** Files of one call. What is beyond goes to whoever is asked for it first. */
const FILES_MAX = 1_000;

export interface SuccessionParts {
  readonly self: ServerId;
  readonly log: Logger;
  isConnected(server: ServerId): boolean;
  peers(): readonly ServerId[];
  /** Has a connection to the peer over which requests of clients can be passed on. */
  reach(peer: ServerId, timeoutMs: number): Promise<unknown>;
  /** Syncs what promises are synced with. */
  flush(): Promise<void>;
  call(to: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
  /** Who asks for the file here is to be sent to the successor. */
  named(file: FileId, successor: ServerId): void;
  /** The primary `from` is about to let go of the file: this server wants it then, and leads it when this resolves. */
  succeed(file: FileId, from: ServerId): Promise<void>;
}

/**
 * Files that are in use change their primary without a gap in which nobody looks for one: the next is chosen by the
 * one that ends, before it ends, and is ready to take the lease at the word that gives it back. It is a wish and no
 * promise: the lease decides, and a successor that does not come is no worse than none.
 */
export class Succession {
  readonly #parts: SuccessionParts;

  constructor(parts: SuccessionParts) {
    this.#parts = parts;
  }

  /**
   * To be called before primaries stop. The next epochs begin with promises, and a promise waits until all that was
   * written before it is synced, too: everybody syncs it now, while the writers still have their primaries. What they ask
   * here a moment later is passed on to the next ones.
   */
  async prepare(): Promise<void> {
    const { self, flush, reach, peers, isConnected, call } = this.#parts;
    const others = peers().filter((peer) => peer !== self && isConnected(peer));
    const asked = others.map((peer) => call(peer, PREPARE_CALL, new Uint8Array(0), PREPARE_MS));
    const reached = others.map((peer) => reach(peer, PREPARE_MS));
    await Promise.all([flush(), ...asked, ...reached].map((work) => work.catch(this.#noteUnprepared)));
  }

  /** Files of a server that is gone get other primaries when its leases end: the same, with time enough. */
  peerLost(): void {
    void this.#parts.flush().catch(this.#noteUnprepared);
  }

  readonly #noteUnprepared = (error: unknown): void => {
    this.#parts.log.debug({ err: error }, 'not everybody is prepared for other primaries');
  };

  /** Answers the call of a server that is about to end. */
  async servePrepare(): Promise<Uint8Array> {
    await this.#parts.flush();
    return new Uint8Array(0);
  }

  /**
   * To be called before these primaries stop. The word travels on the connection on which the leases are given back
   * after it, and so arrives before them.
   *
   * @returns when the successors lead, or have said that they do not, or are silent
   */
  async announce(drivers: readonly ReplicaDriver[]): Promise<void> {
    const { named, call, log } = this.#parts;
    const files = new Map<ServerId, FileId[]>();
    for (const driver of drivers) {
      const successor = this.#chosen(driver);
      if (successor === undefined) continue;
      const its = files.get(successor) ?? [];
      if (its.length >= FILES_MAX) continue;
      its.push(driver.file);
      files.set(successor, its);
      named(driver.file, successor);
    }
    await Promise.all(
      [...files].map(([server, its]) =>
        call(server, SUCCEED_CALL, encodeFiles(its), CALL_MS).catch((error: unknown) => {
          log.debug({ server, files: its.length, err: error }, 'a successor did not answer');
        }),
      ),
    );
  }

  /** Answers the call of a primary, once its files are led here. */
  async serve(from: ServerId, payload: Uint8Array): Promise<Uint8Array> {
    const { succeed, log } = this.#parts;
    await Promise.all(
      decodeFiles(payload).map((file) =>
        succeed(file, from).catch((error: unknown) => {
          log.debug({ file, from, err: error }, 'a file is left to other successors');
        }),
      ),
    );
    return new Uint8Array(0);
  }

  /** Somebody who has everything, so that it need not fetch first; spread over those by the file. */
  #chosen(driver: ReplicaDriver): ServerId | undefined {
    const { self, isConnected } = this.#parts;
    const current = driver
      .peers(isConnected)
      .filter(({ server, role, state }) => server !== self && role === 'backup' && state === 'current');
    return current[driver.file % current.length]?.server;
  }
}

function encodeFiles(files: readonly FileId[]): Uint8Array {
  const writer = new ByteWriter(8 + 8 * files.length).uint32(files.length);
  for (const file of files) writer.uint53(file);
  return writer.finish();
}

/** @throws MalformedError */
function decodeFiles(bytes: Uint8Array): FileId[] {
  const reader = new ByteReader(bytes);
  const count = reader.uint32();
  if (count > FILES_MAX) throw new MalformedError(`${count} files in one call`);
  const files: FileId[] = [];
  for (let place = 0; place < count; place++) {
    files.push(readFileId(reader));
  }
  reader.end();
  return files;
}
