import { LruMap } from '../base/bounded-map.ts';
import type { Subject } from './exchange.ts';

const FILES_MAX = 20_000;

/**
 * Who answered for files last. A file that nobody leads is gone on with by whoever has ordered it last, at less cost than by anybody else
 * (docs/design/mount.md, "A small change of a file at rest"): who opens it again asks there first.
 */
export class LastPrimaries {
  readonly #known = new LruMap<number, string>(FILES_MAX);

  note(file: number, server: string): void {
    this.#known.set(file, server);
  }

  /**
   * @param first who is asked first where nothing is known
   * @returns what requests about the file are about; all of one file share what is known
   */
  subject(file: number, first: string | null): Subject {
    const known = this.#known;
    return {
      get primary() {
        return known.get(file) ?? first;
      },
      set primary(server) {
        if (server === null || server === first) known.delete(file);
        else known.set(file, server);
      },
    };
  }
}
