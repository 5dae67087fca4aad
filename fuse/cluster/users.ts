import { readFileSync } from 'node:fs';
import type { World } from '../../base/world.ts';
import { whoami } from '../../client/transfer/whoami.ts';

const KNOWN_MS = 60_000;

const MOUNT = whoami('mount');

/** How the trash and the events name the remover of a file. */
export interface Users {
  removerText(uid?: number): string;
}

export const NAMELESS_USERS: Users = {
  removerText: (uid) => (uid === undefined ? 'mount' : `mount, by uid ${uid}`),
};

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
    // Users are then shown by number.
    return new Map();
  }
  const entries = text.split('\n').map((line) => line.split(':'));
  return new Map(
    entries.flatMap(([name = '', , uid = '']) => (/^\d+$/.test(uid) ? [[Number(uid), name]] : [])),
  );
}
