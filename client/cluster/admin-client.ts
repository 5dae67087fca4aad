import type { CheckPage, FileInfo, ScrubStatuses, StopCheck, TreeCopy } from '../../wire/http-api.ts';
import type { Attachment } from '../../wire/junctions.ts';
import type { LockList } from '../../wire/lock-api.ts';
import type { RevokedList } from '../../wire/tokens.ts';
import type { CallOptions, Exchanger } from '../transport/exchange.ts';
import { type ExchangeRequest, getRequest, postRequest } from '../transport/request.ts';
import type { Response } from '../transport/response.ts';
import { listLocks } from './file-locks.ts';
import { encodePlace, type RemotePlace } from './remote-path.ts';

/** Covers the time for which a server works on a move before it answers. */
const MOVE_ATTEMPT_MS = 70_000;
const KEY_BYTES = 16;

interface CopyOptions extends CallOptions {
  readonly overwrite: boolean;
}

/** Administrative requests. Any server answers them. */
export class AdminClient {
  readonly #exchanger: Exchanger;

  constructor(exchanger: Exchanger) {
    this.#exchanger = exchanger;
  }

  locks(file: number, options?: CallOptions): Promise<LockList> {
    return listLocks(this.#exchanger, file, options);
  }

  revokedCertificates(options?: CallOptions): Promise<RevokedList> {
    const what = 'Cannot list the revoked certificates';
    return this.#exchanger.ask(getRequest(what, '/v1/certificates/revoked'), options);
  }

  /** Progress of scrubs by server; null for a server that does not answer. @param server null for all servers */
  scrubs(server: string | null, options?: CallOptions): Promise<ScrubStatuses> {
    return this.#exchanger.ask(getRequest('Cannot get the progress of scrubs', scrubPath(server)), options);
  }

  startScrubs(server: string | null, options?: CallOptions): Promise<ScrubStatuses> {
    return this.#exchanger.ask(postRequest('Cannot start a scrub', scrubPath(server)), options);
  }

  /** Compares the replicas of all servers with the catalog: one page, of files with numbers after `after`. */
  check(after: number, options?: CallOptions): Promise<CheckPage> {
    const what = 'Cannot compare replicas with the catalog';
    return this.#exchanger.ask(getRequest(what, `/v1/check?after=${after}`), options);
  }

  /** Whether a server can be stopped now without making anything unavailable. */
  okToStop(server: string, options?: CallOptions): Promise<StopCheck> {
    const what = `Cannot check whether server ${server} can be stopped`;
    return this.#exchanger.ask(
      getRequest(what, `/v1/servers/${encodeURIComponent(server)}/ok-to-stop`),
      options,
    );
  }

  /** Moves a file's replicas; resolves when they are there. A second call during a move waits for the same move. */
  changeMembers(file: number, members: readonly string[], options?: CallOptions): Promise<FileInfo['view']> {
    const what = `Cannot move the replicas of file ${file}`;
    const request = postRequest(what, `/v1/data/${file}/members`, { members });
    return this.#exchanger.ask(request, { attemptMs: MOVE_ATTEMPT_MS, ...options });
  }

  /** Attaches a volume at a directory that does not exist yet. A repeated call completes an interrupted one. */
  attach(volume: string, at: RemotePlace, options?: CallOptions): Promise<Attachment> {
    const what = `Cannot attach the volume ${volume} at ${at.volume}:${at.path}`;
    const path = `/v1/junctions/${encodePlace(at)}?${new URLSearchParams({ volume })}`;
    return this.#exchanger.ask({ what, method: 'PUT', path, mutation: true }, options);
  }

  async detach(at: RemotePlace, options?: CallOptions): Promise<void> {
    const what = `Cannot detach the volume at ${at.volume}:${at.path}`;
    await this.#delete(what, `/v1/junctions/${encodePlace(at)}`, options);
  }

  /** Detaches a volume wherever it is attached. */
  async detachVolume(volume: string, options?: CallOptions): Promise<void> {
    const path = `/v1/junctions?${new URLSearchParams({ volume })}`;
    await this.#delete(`Cannot detach the volume ${volume}`, path, options);
  }

  /** Removes everything in a volume, bypassing its trash; not its snapshots. */
  async removeAll(volume: string, options?: CallOptions): Promise<void> {
    const query = new URLSearchParams({ recursive: 'true', trash: 'false' });
    const path = `/v1/files/${encodeURIComponent(volume)}/?${query}`;
    const what = `Cannot remove the contents of ${volume}`;
    const request: ExchangeRequest = { what, method: 'DELETE', path, mutation: true };
    const limits = { attemptMs: MOVE_ATTEMPT_MS, ...options };
    // 202: there is more to remove.
    const readMore = async ({ statusCode, body }: Response): Promise<boolean> => {
      await body.bytes();
      return statusCode === 202;
    };
    while (await this.#exchanger.perform({ primary: null }, request, readMore, limits));
  }

  async #delete(what: string, path: string, options?: CallOptions): Promise<void> {
    const request = { what, method: 'DELETE', path, mutation: true } as const;
    await this.#exchanger.perform({ primary: null }, request, async () => undefined, options);
  }

  async copyFile(from: RemotePlace, to: RemotePlace, { overwrite, ...options }: CopyOptions): Promise<void> {
    const key = { 'idempotency-key': this.#exchanger.world.randomBytes(KEY_BYTES).toString('hex') };
    const request = { ...copyRequest(from, to, '', { overwrite }), headers: key };
    await this.#exchanger.perform({ primary: null }, request, async () => undefined, options);
  }

  /**
   * Copies a directory recursively; each answer reports the progress. With `resume`, files are skipped that the target
   * already has with the size and time of their sources. The message of an error says where to resume.
   */
  async *copyTree(
    from: RemotePlace,
    to: RemotePlace,
    { overwrite, resume, ...options }: CopyOptions & { readonly resume: boolean },
  ): AsyncGenerator<TreeCopy, void, undefined> {
    for (let after: string | undefined = ''; after !== undefined; ) {
      const place: { readonly after?: string } = after === '' ? {} : { after };
      const request = copyRequest(from, to, '/', { overwrite, resume, ...place });
      const limits = { attemptMs: MOVE_ATTEMPT_MS, ...options };
      const copied: TreeCopy = await this.#exchanger.ask(request, limits);
      yield copied;
      after = copied.next;
    }
  }
}

function copyRequest(
  from: RemotePlace,
  to: RemotePlace,
  slash: '' | '/',
  search: Readonly<Record<string, string | boolean>>,
): ExchangeRequest {
  const query = new URLSearchParams({ 'copy-to': `${to.volume}:${to.path}${slash}` });
  for (const [name, value] of Object.entries(search)) query.set(name, String(value));
  const place = encodePlace(from.path === '/' ? { ...from, path: '' } : from);
  return postRequest(
    `Cannot copy ${from.volume}:${from.path}`,
    `/v1/files/${place}${slash}?${query}`,
    undefined,
    { mutation: true },
  );
}

function scrubPath(server: string | null): string {
  return server === null ? '/v1/scrub' : `/v1/scrub?server=${encodeURIComponent(server)}`;
}
