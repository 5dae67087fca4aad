import type { Logger } from 'pino';
import type { FileId, ServerId } from '../../base/ids.ts';
import { readFileId } from '../../replica/codec.ts';
import { ByteReader, ByteWriter, MalformedError } from '../../wire/bytes.ts';
import type { ReplicaDriver } from '../drivers/replica-driver.ts';

/** Asks another server of the files to be the next primary, before this one releases them. */
export const SUCCEED_CALL = 'succeed';

/** Asks the other servers to sync everything that would delay a promise, before this server releases files. */
export const PREPARE_CALL = 'prepare-succession';

export const SUCCESSION_MS_MAX = 500;
const CALL_MS = 1_000;
const PREPARE_MS = 250;
/** Files for which one successor is chosen; of further files, the first server that gets a request becomes primary. */
const FILES_MAX = 1_000;

export interface SuccessionParts {
  readonly self: ServerId;
  readonly log: Logger;
  isConnected(server: ServerId): boolean;
  peers(): readonly ServerId[];
  reach(peer: ServerId, timeoutMs: number): Promise<unknown>;
  /** Syncs the log that promises are synced with. */
  flush(): Promise<void>;
  call(to: ServerId, method: string, payload: Uint8Array, timeoutMs: number): Promise<Uint8Array>;
  /** Clients that request the file here are to be sent to the successor. */
  successorChosen(file: FileId, successor: ServerId): void;
  /** Resolves when this server is primary of the file, which `from` is about to release. */
  succeed(file: FileId, from: ServerId): Promise<void>;
}

/**
 * Files in use change their primary without a gap: the ending primary chooses the next one, which is ready to take the
 * lease when the release arrives. The lease decides; a successor that fails is no worse than none.
 */
export class Succession {
  readonly #parts: SuccessionParts;

  constructor(parts: SuccessionParts) {
    this.#parts = parts;
  }

  /**
   * To be called before primaries stop. The next epochs begin with promises, and a promise waits for the sync of
   * everything written before it: all servers sync now, while the writers still have their primaries.
   */
  async prepare(): Promise<void> {
    const { self, flush, reach, peers, isConnected, call } = this.#parts;
    const others = peers().filter((peer) => peer !== self && isConnected(peer));
    const asked = others.map((peer) => call(peer, PREPARE_CALL, new Uint8Array(0), PREPARE_MS));
    const reached = others.map((peer) => reach(peer, PREPARE_MS));
    await Promise.all([flush(), ...asked, ...reached].map((work) => work.catch(this.#noteUnprepared)));
  }

  /** Files of the peer get other primaries when its leases end, so this server syncs now. */
  peerLost(): void {
    void this.#parts.flush().catch(this.#noteUnprepared);
  }

  readonly #noteUnprepared = (error: unknown): void => {
    this.#parts.log.debug({ err: error }, 'cannot sync all servers before a change of primaries');
  };

  async servePrepare(): Promise<Uint8Array> {
    await this.#parts.flush();
    return new Uint8Array(0);
  }

  /**
   * To be called before these primaries stop: on the same connection the announcement arrives before the release of the
   * leases. Resolves when the successors are primary, have refused, or did not answer in time.
   */
  async announce(drivers: readonly ReplicaDriver[]): Promise<void> {
    const { successorChosen, call, log } = this.#parts;
    const files = new Map<ServerId, FileId[]>();
    for (const driver of drivers) {
      const successor = this.#chosen(driver);
      if (successor === undefined) continue;
      const list = files.get(successor) ?? [];
      if (list.length >= FILES_MAX) continue;
      list.push(driver.file);
      files.set(successor, list);
      successorChosen(driver.file, successor);
    }
    await Promise.all(
      [...files].map(([server, list]) =>
        call(server, SUCCEED_CALL, encodeFiles(list), CALL_MS).catch((error: unknown) => {
          log.debug({ server, files: list.length, err: error }, 'a successor did not answer');
        }),
      ),
    );
  }

  /** Answers `announce` of `from`, which is about to release these files: becomes their primary, where it can. */
  async serve(from: ServerId, payload: Uint8Array): Promise<Uint8Array> {
    const { succeed, log } = this.#parts;
    await Promise.all(
      decodeFiles(payload).map((file) =>
        succeed(file, from).catch((error: unknown) => {
          log.debug(
            { file, from, err: error },
            'this server does not become primary of a file that its primary releases',
          );
        }),
      ),
    );
    return new Uint8Array(0);
  }

  /** @returns a backup that has all operations, so that it need not fetch; files are spread over all such backups */
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
