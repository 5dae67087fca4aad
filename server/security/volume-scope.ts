import { LruMap } from '../../base/bounded-map.ts';
import { ServiceError } from '../../base/errors.ts';
import type { Grant } from '../../wire/access.ts';
import type { AccessTargets } from './catalog-rules.ts';

/** Inodes whose volume is cached; an inode never changes its volume. */
const KNOWN_MAX = 50_000;

/** Checks requests against the volumes of a grant. */
export class VolumeScope {
  readonly #ask: (inode: number) => Promise<string>;
  readonly #known = new LruMap<number, string>(KNOWN_MAX);

  /** @param ask asks the catalog for the volume of an inode; throws `not-found` if the inode does not exist */
  constructor(ask: (inode: number) => Promise<string>) {
    this.#ask = ask;
  }

  /** @throws ServiceError `forbidden` unless all of it is within the volumes of `grant` */
  async check(grant: Grant, { volumes, inodes }: AccessTargets): Promise<void> {
    if (grant.volumes === null) return;
    if (volumes.length + inodes.length === 0) throw outOfScope(grant, 'the request is not about one volume');
    for (const volume of volumes) this.checkVolume(grant, volume);
    for (const inode of inodes) this.checkVolume(grant, await this.volumeOf(inode));
  }

  checkVolume(grant: Grant, volume: string): void {
    assertVolumeGranted(grant, volume);
  }

  async volumeOf(inode: number): Promise<string> {
    const known = this.#known.get(inode);
    if (known !== undefined) return known;
    const volume = await this.#ask(inode);
    this.#known.set(inode, volume);
    return volume;
  }
}

/** @throws ServiceError `forbidden` unless `grant` covers the volume */
export function assertVolumeGranted(grant: Grant, volume: string): void {
  if (grant.volumes === null || grant.volumes.includes(volume)) return;
  throw outOfScope(grant, 'the request is about another volume');
}

/** Returns the error for a request beyond the grant's volumes; it does not reveal other volumes. */
function outOfScope({ name, volumes }: Grant, why: string): ServiceError {
  return new ServiceError('forbidden', `"${name}" may only use the volumes ${volumes?.join(', ')}: ${why}`);
}
