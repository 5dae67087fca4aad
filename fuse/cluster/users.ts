import { readFileSync } from 'node:fs';
import type { World } from '../../base/world.ts';
import { whoami } from '../../client/whoami.ts';

/** Names are read again after so long, in milliseconds. */
const KNOWN_MS = 60_000;

/** Does not change while the process runs. */
const MOUNT = whoami('mount');

/** How the trash and the events name who removed a file. */
export interface Users {
  /**
   * @param uid of the program's user, where that is known
   * @returns this mount, and the user
   */
  removerText(uid?: number): string;
}

/** Users by their numbers, of a mount without a name. */
export const NAMELESS_USERS: Users = {
  removerText: (uid) => (uid === undefined ? 'mount' : `mount, by uid ${uid}`),
};

/** Names of this machine's users, as `/etc/passwd` has them. */
export class SystemUsers implements Users {
  readonly #world: World;
  #names = new Map<number, string>();
  #readMs = Number.NEGATIVE_INFINITY;

  constructor(world: World) {
    this.#world = world;
  }

  removerText(uid?: number): string {
    return uid === undefined ? MOUNT : `${MOUNT}, by ${this.#text(uid)}`;
  }

  #text(uid: number): string {
    if (this.#world.nowMs() - this.#readMs > KNOWN_MS) {
      this.#readMs = this.#world.nowMs();
      this.#names = passwdNames();
    }
    const name = this.#names.get(uid);
    return name === undefined ? `uid ${uid}` : `${name} (uid ${uid})`;
  }
}

function passwdNames(): Map<number, string> {
  let text: string;
  try {
    text = readFileSync('/etc/passwd', 'utf8');
  } catch {
    // Then users have no names here: what is told is the number.
    return new Map();
  }
  const rows = text.split('\n').map((line) => line.split(':'));
  return new Map(rows.flatMap(([name = '', , uid = '']) => (/^\d+$/.test(uid) ? [[Number(uid), name]] : [])));
}
