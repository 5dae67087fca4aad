import { ServiceError } from '../../base/errors.ts';
import type { InodeVolumes } from '../../base/inode-volumes.ts';
import type { Grant } from '../../wire/access.ts';
import type { AccessTargets } from './catalog-rules.ts';

/** Checks requests against the volumes of a grant. */
export class VolumeScope {
  readonly #volumes: Pick<InodeVolumes, 'of'>;

  constructor(volumes: Pick<InodeVolumes, 'of'>) {
    this.#volumes = volumes;
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

  /** @throws ServiceError `not-found` if there is no such inode */
  volumeOf(inode: number): Promise<string> {
    return this.#volumes.of(inode);
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
