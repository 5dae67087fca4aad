import { ServiceError } from '../../base/errors.ts';
import type { Prng } from '../../base/prng.ts';
import type { ClusterClient } from '../../client/cluster/cluster-client.ts';

const NAMES = ['a', 'b', 'c', 'd', 'e', 'ü', 'n n'];

/** Random changes of a volume's files and names, through a client. */
export class RandomChanges {
  readonly #client: ClusterClient;
  readonly #volume: string;
  readonly #random: Prng;
  #made = 0;

  constructor(client: ClusterClient, volume: string, random: Prng) {
    this.#client = client;
    this.#volume = volume;
    this.#random = random;
  }

  async make(count: number): Promise<void> {
    if (this.#made === 0) await this.#prepare();
    for (const end = this.#made + count; this.#made < end; this.#made++) await this.step();
    await this.#client.flushCatalog();
  }

  /** Directories, so that few changes are refused. */
  async #prepare(): Promise<void> {
    for (const path of ['/a', '/b', '/c', '/a/a', '/a/b', '/b/c'])
      await this.#client
        .command({
          kind: 'make-directory',
          place: { volume: this.#volume, path },
          mode: 0o755,
          uid: 0,
          gid: 0,
        })
        .catch((error: unknown) => {
          // Another run of changes may have left something else there.
          if (!(error instanceof ServiceError)) throw error;
        });
  }

  /** One change, or none if it is refused. */
  async step(): Promise<void> {
    try {
      await this.#act();
    } catch (error) {
      const expected = [
        'not-found',
        'exists',
        'not-directory',
        'is-directory',
        'not-empty',
        'no-attribute',
        'bad-request',
        'forbidden',
      ];
      if (!(error instanceof ServiceError) || !expected.includes(error.code)) throw error;
    }
  }

  async put(path: string, text: string): Promise<void> {
    const client = this.#client;
    const place = { volume: this.#volume, path };
    const made = await client.command({
      kind: 'create-file',
      place,
      mode: 0o644,
      uid: 1,
      gid: 2,
      exclusive: false,
    });
    const file = client.openFile(made.attributes.inode);
    await file.write(this.#random.integer(0, 1) === 0 ? 0 : 5, Buffer.from(text));
    await file.settle();
  }

  async #act(): Promise<void> {
    const client = this.#client;
    const place = this.#place();
    const owner = { uid: this.#random.integer(0, 3), gid: 1 };
    switch (this.#random.integer(0, 15)) {
      case 0:
      case 1:
      case 2:
        await client.command({ kind: 'make-directory', place, mode: 0o755, ...owner });
        return;
      case 3:
      case 4:
      case 5:
        await this.put(place.path, `contents of ${this.#made}`.repeat(this.#random.integer(1, 40)));
        return;
      case 6:
        await client.command({ kind: 'symlink', place, target: `a/${this.#made}`, ...owner });
        return;
      case 7:
        await client.command({ kind: 'unlink', place });
        return;
      case 8:
        await client.command({ kind: 'remove-directory', place });
        return;
      case 9:
      case 10:
      case 11:
        await client.command({
          ...{ kind: 'rename', from: place, to: this.#place() },
          mode: this.#random.chance(0.4) ? 'exchange' : 'replace',
        });
        return;
      case 12:
        await client.command({ kind: 'link', inode: await this.#inodeAt(place.path), place: this.#place() });
        return;
      case 13: {
        const inode = await this.#inodeAt(place.path);
        await client.command({
          kind: 'set-attributes',
          inode,
          mode: this.#random.integer(0, 0o777),
          ...owner,
        });
        return;
      }
      case 14: {
        const inode = await this.#inodeAt(place.path);
        const name = `user.${this.#random.integer(0, 2)}`;
        const value = Buffer.from([this.#random.integer(0, 255)]).toString('base64');
        if (this.#random.chance(0.7))
          await client.command({ kind: 'set-xattr', inode, name, value, mode: 'set' });
        else await client.command({ kind: 'remove-xattr', inode, name });
        return;
      }
      default:
        await client.command({ kind: 'make-node', place, type: 'fifo', device: 0, mode: 0o600, ...owner });
    }
  }

  async #inodeAt(path: string): Promise<number> {
    return (await this.#client.resolve(this.#volume, path, { follow: false })).inode;
  }

  #place(): { volume: string; path: string } {
    const depth = this.#random.integer(1, 3);
    const names = Array.from({ length: depth }, () => NAMES[this.#random.integer(0, NAMES.length - 1)]);
    return { volume: this.#volume, path: `/${names.join('/')}` };
  }
}
