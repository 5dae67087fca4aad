import { isRefusal, ServiceError } from '../../base/errors.ts';
import { ROOT_CATALOG } from '../../base/ids.ts';
import type { CommandOf } from '../../wire/catalog-api.ts';
import type { Attachment } from '../../wire/junctions.ts';
import type { Gateway } from './gateway.ts';
import type { Location } from './location.ts';

/** Nothing of a junction is visible while a volume is attached there; only administrators attach and detach. */
const JUNCTION = { mode: 0o755, uid: 0, gid: 0 };

type AttachmentGateway = Pick<Gateway, 'durably' | 'queryCatalog' | 'services'>;

/**
 * Attaches volumes at directories of others, and detaches them. The root catalog's list alone decides what is attached:
 * a junction that it does not name is inert, so an interruption between the two commands leaves nothing that a client
 * could cross, and the same request completes the work.
 */
export class Attachments {
  readonly #gateway: AttachmentGateway;

  constructor(gateway: AttachmentGateway) {
    this.#gateway = gateway;
  }

  /** @param at a name that does not exist, or a junction that an interrupted request for this volume has left */
  async attach(volume: string, at: Location): Promise<Attachment> {
    const { root } = (await this.#gateway.queryCatalog({ kind: 'volume', name: volume })).volume;
    const catalog = this.#gateway.services.catalogs.ofInode(root);
    if (catalog === ROOT_CATALOG) {
      const text = `The volume "${volume}" has no catalog of its own: only such volumes can be attached`;
      throw new ServiceError('precondition-failed', text);
    }
    const place = { volume: at.volume, path: at.path };
    const created = { kind: 'junction-create', place, catalog, volume, ...JUNCTION } as const;
    const { inode } = (await this.#gateway.durably(created)).attributes;
    try {
      await this.#gateway.durably({ kind: 'volume-attach', name: volume, inode });
    } catch (error) {
      // Another request may attach the volume at a junction that it was given, too: that one stays, and may be inert.
      if (isRefusal(error)) await this.#removeJunction({ inode, unshared: true });
      throw error;
    }
    await this.#gateway.services.catalogs.refresh();
    await this.#assertJunction(volume, inode);
    return { volume, inode };
  }

  /** Another request may have begun to detach the volume before it was attached, and have removed the junction. */
  async #assertJunction(name: string, inode: number): Promise<void> {
    try {
      await this.#gateway.queryCatalog({ kind: 'attributes', inode });
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'not-found') throw error;
      await this.#gateway.durably({ kind: 'volume-detach', name, inode });
      throw new ServiceError('precondition-failed', `The volume "${name}" was detached meanwhile`);
    }
  }

  async detachAt({ volume: parent, path }: Location): Promise<void> {
    const query = { kind: 'resolve', volume: parent, path, follow: false, junction: 'self' } as const;
    const { inode, junction } = (await this.#gateway.queryCatalog(query)).attributes;
    if (junction === undefined)
      throw new ServiceError('not-found', `No volume is attached at "${parent}:${path}"`);
    await this.#detach(junction.volume, inode);
  }

  /** Detaches a volume wherever it is attached, also if its junction is lost. */
  async detachVolume(volume: string): Promise<void> {
    const inode = await this.#attachedAt(volume);
    if (inode === null) throw new ServiceError('not-found', `The volume "${volume}" is not attached`);
    await this.#detach(volume, inode);
  }

  /**
   * Once the root catalog has detached the volume, no path crosses the junction, and it can be removed. Another request
   * may have attached the volume there in between: it is attached nowhere then, because an inode number is used once.
   */
  async #detach(name: string, inode: number): Promise<void> {
    const detachment = { kind: 'volume-detach', name, inode } as const;
    await this.#gateway.durably(detachment);
    await this.#gateway.services.catalogs.refresh();
    await this.#removeJunction({ inode });
    await this.#gateway.durably(detachment);
  }

  async #removeJunction(junction: Omit<CommandOf<'junction-remove'>, 'kind'>): Promise<void> {
    try {
      await this.#gateway.durably({ kind: 'junction-remove', ...junction });
    } catch (error) {
      // The volume that had it was removed.
      if (!(error instanceof ServiceError) || error.code !== 'not-found') throw error;
    }
  }

  async #attachedAt(volume: string): Promise<number | null> {
    const { catalogs } = this.#gateway.services;
    await catalogs.refresh();
    return catalogs.row(catalogs.ofVolume(volume))?.attached ?? null;
  }
}
