import { LruMap } from '../../base/bounded-map.ts';
import type { Subject } from '../transport/exchange.ts';

const FILES_MAX = 20_000;

/**
 * The servers that answered for files last. While a file has no primary, its last primary orders changes at less cost
 * than others (docs/design/mount.md, "A small change of a file at rest"), so a client that opens it again asks there
 * first.
 */
export class LastPrimaries {
  readonly #known = new LruMap<number, string>(FILES_MAX);

  note(file: number, server: string): void {
    this.#known.set(file, server);
  }

  subject(file: number, firstReplica: string | null): Subject {
    const known = this.#known;
    return {
      get primary() {
        return known.get(file) ?? firstReplica;
      },
      set primary(server) {
        if (server === null || server === firstReplica) known.delete(file);
        else known.set(file, server);
      },
    };
  }
}
