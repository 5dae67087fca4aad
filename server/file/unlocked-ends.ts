import type { Logger } from 'pino';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { readFileId } from '../../replica/codec.ts';
import { ByteReader, ByteWriter, MalformedError } from '../../wire/bytes.ts';
import type { Transport } from '../transport/transport.ts';

export const UNLOCKED_CALL = 'ended-unlocked';

const CALL_MS = 1_000;
const FILES_MAX = 5_000;

/** A primary ended the epoch with this counter in good order, and no client can claim a lock of it. */
export interface UnlockedEnd {
  readonly file: FileId;
  readonly counter: number;
}

interface LockEndingsParts extends Pick<Transport, 'call' | 'isConnected'> {
  readonly world: World;
  readonly log: Logger;
  received(ending: UnlockedEnd): void;
}

/**
 * Notifies the servers that may be the next primary of an epoch's end without locks: they then need no grace (decision
 * 0070). A server that does not receive it observes the grace, as after a crash of the primary.
 */
export class UnlockedEnds {
  readonly #parts: LockEndingsParts;
  readonly #pending = new Map<ServerId, UnlockedEnd[]>();

  constructor(parts: LockEndingsParts) {
    this.#parts = parts;
  }

  /** Reports an epoch's end without locks to `servers`, one of which may be the next primary; once a tick to each. */
  notify(ending: UnlockedEnd, servers: readonly ServerId[]): void {
    if (this.#pending.size === 0) this.#parts.world.soon(() => this.#flush());
    for (const server of servers) {
      const pending = this.#pending.get(server) ?? [];
      if (pending.length === 0) this.#pending.set(server, pending);
      pending.push(ending);
    }
  }

  serve(payload: Uint8Array): Uint8Array {
    for (const ending of decodeEndings(payload)) this.#parts.received(ending);
    return new Uint8Array(0);
  }

  #flush(): void {
    const { isConnected, call, log } = this.#parts;
    const pending = [...this.#pending];
    this.#pending.clear();
    for (const [server, endings] of pending) {
      if (!isConnected(server)) continue;
      for (let from = 0; from < endings.length; from += FILES_MAX) {
        const part = endings.slice(from, from + FILES_MAX);
        // A lock is rarely requested at once, and a late notification still ends a grace.
        call(server, UNLOCKED_CALL, encodeEndings(part), CALL_MS, true).catch((error: unknown) => {
          log.debug(
            { server, files: part.length, err: error },
            'cannot notify a server that files have no locks',
          );
        });
      }
    }
  }
}

function encodeEndings(endings: readonly UnlockedEnd[]): Uint8Array {
  const writer = new ByteWriter(4 + 16 * endings.length).uint32(endings.length);
  for (const { file, counter } of endings) writer.uint53(file).uint53(counter);
  return writer.finish();
}

function decodeEndings(bytes: Uint8Array): UnlockedEnd[] {
  const reader = new ByteReader(bytes);
  const count = reader.uint32();
  if (count > FILES_MAX) throw new MalformedError(`${count} files in one call`);
  const endings: UnlockedEnd[] = [];
  for (let place = 0; place < count; place++) {
    endings.push({ file: readFileId(reader), counter: reader.uint53() });
  }
  reader.end();
  return endings;
}
