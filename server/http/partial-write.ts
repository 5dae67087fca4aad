import type { FastifyReply, FastifyRequest } from 'fastify';
import { assert } from '../../base/assert.ts';
import { type ErrorCode, ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { FILE_BYTES_MAX, WRITE_BYTES_MAX } from '../../wire/file-operation.ts';
import type { WriteResult } from '../../wire/http-api.ts';
import { isClientWaiting } from '../requests/expectation.ts';
import { displayPath, type FilePath } from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import { attributesWithState } from '../routing/live-attributes.ts';
import { setFileHeaders } from './answers.ts';
import { attributesAt, hasConditions } from './conditional-change.ts';
import {
  type Conditions,
  checkForChange,
  conditionsOf,
  currentVersionOf,
  etagOf,
  httpDate,
} from './conditions.ts';
import { claimedDigests, DigestCheck } from './digests.ts';
import { idempotencyKeyOf, type PinnedWrite, pinnedWrite, pinWrite, type RequestKey } from './idempotency.ts';
import { integerOf } from './input.ts';
import { NumberedWrites } from './numbered-writes.ts';
import { UPLOAD_IDLE_MS } from './upload.ts';
import { readWholeBody } from './whole-body.ts';

export const HEADER_OFFSET = 'leasehold-offset';

/** At the same time; each holds its body in memory. */
const WRITES_MAX = 128;
/** No file has this version: the primary only repeats an answer, and writes nothing. */
const NO_CONTENTS = { epoch: Number.MAX_SAFE_INTEGER, seq: 0 };
/** How often the conditions of a request are checked while other clients change the file or its name. */
const JUDGEMENTS_MAX = 3;
/** Refusals that depend on what is at the path now: an earlier attempt with the same key may have succeeded before. */
const PATH_REFUSALS: ReadonlySet<ErrorCode> = new Set([
  'precondition-failed',
  'not-found',
  'is-directory',
  'not-directory',
  'bad-request',
]);
/** Errors of a catalog primary that does not know pins, or has a member that does not. */
const UNPINNED: ReadonlySet<ErrorCode> = new Set(['precondition-failed', 'bad-request']);

const CONTENT_RANGE = /^bytes (\d{1,16})-(\d{1,16})\/(?:\*|(\d{1,16}))$/i;

interface Judgement {
  /** The file at the path; null if there is none. */
  readonly current: Attributes | null;
  /** The inode's last change as the catalog has it; undefined if the file may not be written. */
  readonly changedNs?: string | undefined;
  readonly refusal: ServiceError | null;
}

interface Attempt extends Judgement {
  readonly path: FilePath;
  readonly conditions: Conditions;
  readonly place: WritePlace;
  readonly key: RequestKey | null;
  readonly bytes: Uint8Array;
  /** No attempt asks again for answers of the session up to this number. */
  readonly answered: number;
  readonly judgements: number;
}

/**
 * `PATCH` of a file, and `PUT` with `Content-Range`: writes the body in place, at an offset or at the end. The file's
 * primary orders it as one operation: readers see all of it or nothing, and the conditions are decided in the same
 * step.
 */
export class PartialWrites {
  readonly #gateway: Gateway;
  readonly #requests: NumberedWrites;
  /** Separate, because their answers are kept for later attempts. */
  readonly #keyedRequests: NumberedWrites;
  #active = 0;

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
    const random53 = (): number => gateway.drawSession();
    this.#requests = new NumberedWrites(random53);
    this.#keyedRequests = new NumberedWrites(random53);
  }

  async write(request: FastifyRequest, reply: FastifyReply, path: FilePath): Promise<FastifyReply> {
    if (this.#active >= WRITES_MAX) {
      throw new ServiceError(
        'busy',
        `Too many writes: ${WRITES_MAX} at this server, the maximum; retry later or use another server`,
      );
    }
    this.#active++;
    request.raw.setTimeout(UPLOAD_IDLE_MS, () => request.raw.destroy());
    try {
      return await this.#write(request, reply, path);
    } finally {
      request.raw.setTimeout(0);
      this.#active--;
    }
  }

  async #write(request: FastifyRequest, reply: FastifyReply, path: FilePath): Promise<FastifyReply> {
    const conditions = conditionsOf(request.headers);
    const check = new DigestCheck(claimedDigests(request.headers));
    const place = placeOf(request, path);
    const key = idempotencyKeyOf(request);
    // A refused client does not send the body. With a key the body is needed to ask for an earlier attempt's outcome.
    if (key === null && isClientWaiting(request.raw))
      checkWrite((await this.#fileAt(path, conditions)).current, conditions, place, path);
    const bytes = await readWholeBody(request, WRITE_BYTES_MAX);
    if (bytes.length === 0) throw new ServiceError('bad-request', 'The write has an empty body');
    if (place.kind === 'range' && place.length !== bytes.length) {
      const why = `names ${place.length} bytes, and the body has ${bytes.length}`;
      throw new ServiceError('bad-request', `Content-Range ${why}`);
    }
    check.update(bytes);
    check.check();
    const judgement = await this.#judge(path, conditions, place);
    // After the check: an earlier attempt that changed what the conditions are about was pinned before.
    const pinned = key === null ? null : await pinnedWrite(this.#gateway, path.volume, key);
    const send = (write: PinnedWrite, answered: number): Promise<FastifyReply> =>
      this.#send(reply, write, {
        path,
        conditions,
        place,
        key,
        bytes,
        answered,
        judgements: 1,
        ...judgement,
      });
    if (pinned !== null) return send(pinned, 0);
    if (judgement.refusal !== null) throw judgement.refusal;
    assert(judgement.current !== null, 'What is not refused is a file');
    const file = judgement.current.inode as FileId;
    const requests = (key === null ? this.#requests : this.#keyedRequests).requestsOf(file);
    const numbered = requests.acquire(null);
    try {
      const { seq: since } = await this.#gateway.files.state(file);
      const write = { inode: file, since, session: numbered.session, number: numbered.number };
      // A later attempt with a key asks for the answer.
      return await (key === null
        ? send(write, requests.answered(numbered))
        : send(await this.#pin(key, write), 0));
    } finally {
      requests.release(numbered);
    }
  }

  async #send(reply: FastifyReply, write: PinnedWrite, attempt: Attempt): Promise<FastifyReply> {
    const { path, conditions, place, key, bytes, answered, current, changedNs, refusal } = attempt;
    const { inode, ...request } = write;
    const file = inode as FileId;
    const guarded = hasConditions(conditions) || (place.kind === 'range' && place.total !== null);
    // An earlier attempt may have changed what the conditions are about, or the path has another file: the primary only
    // repeats its answer.
    const onlyRepeats = refusal !== null || current?.inode !== file;
    const contents = onlyRepeats ? NO_CONTENTS : current.contents;
    const guard = { contents, ...(onlyRepeats || changedNs === undefined ? {} : { changedNs }) };
    const options = { guard: guarded || onlyRepeats ? guard : {} };
    const at = place.kind === 'append' ? 'append' : place.offset;
    let written: WriteResult;
    try {
      written = await this.#gateway.files.write(file, { ...request, answered }, at, bytes, options);
    } catch (error) {
      const isRefused = error instanceof ServiceError && error.code === 'precondition-failed';
      const again = isRefused && guarded && !onlyRepeats ? await this.#judgeAgain(attempt) : null;
      if (again !== null && again.current?.inode === file) return this.#send(reply, write, again);
      throw key === null ? error : keyedFailure(error, { refusal, onlyRepeats, path });
    }
    await this.#gateway.files.flush(file);
    if (guarded && written.sameNames !== true) await this.#assertStillThere(path, file);
    return answer(reply, this.#gateway, file, written);
  }

  /** Checks the conditions again after a concurrent change of the file or its names; null after `JUDGEMENTS_MAX`. */
  async #judgeAgain(attempt: Attempt): Promise<Attempt | null> {
    const { path, conditions, place, judgements, changedNs, current } = attempt;
    if (judgements === JUDGEMENTS_MAX) return null;
    let judged = await this.#judge(path, conditions, place);
    const isSame =
      judged.current?.inode === current?.inode &&
      judged.current?.contents.seq === current?.contents.seq &&
      judged.changedNs === changedNs;
    if (isSame && current !== null) {
      // Settling ends the primary's mark with an older `changedNs`; the next mark has the current one.
      await this.#gateway.files.settle(current.inode as FileId);
      judged = await this.#judge(path, conditions, place);
    }
    if (judged.refusal !== null) throw judged.refusal;
    return { ...attempt, ...judged, judgements: judgements + 1 };
  }

  /** Checks a write's conditions. A refusal is returned, because a repeated request gets its first attempt's answer. */
  async #judge(path: FilePath, conditions: Conditions, place: WritePlace): Promise<Judgement> {
    let found: { readonly current: Attributes; readonly changedNs: string } | null = null;
    try {
      found = await this.#fileAt(path, conditions);
      checkWrite(found.current, conditions, place, path);
      return { ...found, refusal: null };
    } catch (error) {
      if (!(error instanceof ServiceError) || !PATH_REFUSALS.has(error.code)) throw error;
      return { current: found?.current ?? null, refusal: error };
    }
  }

  /** Pins a write, so that later attempts with the key send the same. Syncs the file first, so that `since` lasts. */
  async #pin(key: RequestKey, write: PinnedWrite): Promise<PinnedWrite> {
    await this.#gateway.files.flush(write.inode as FileId);
    try {
      return await pinWrite(this.#gateway, key, write);
    } catch (error) {
      // While a member of the catalog runs a release without pins, only the file's last 64 sessions are remembered.
      if (error instanceof ServiceError && UNPINNED.has(error.code))
        return { ...write, session: key.session, number: 1 };
      throw error;
    }
  }

  async #fileAt(
    path: FilePath,
    conditions: Conditions,
  ): Promise<{ readonly current: Attributes; readonly changedNs: string }> {
    const known = await attributesAt(this.#gateway, path, { follow: true, live: false });
    if (known === null) checkForChange(conditions, null, displayPath(path));
    if (known === null) throw new ServiceError('not-found', `${displayPath(path)} does not exist`);
    const { kind, changedNs, live } = known;
    if (kind === 'directory') throw new ServiceError('is-directory', `${displayPath(path)} is a directory`);
    if (kind !== 'file')
      throw new ServiceError('bad-request', `${displayPath(path)} is a ${kind}, without contents`);
    const state = live ? await this.#gateway.files.state(known.inode as FileId) : null;
    return { current: state === null ? known : attributesWithState(known, state), changedNs };
  }

  /** After a conditional write: @throws `precondition-failed` if the path has another file, which lacks the write */
  async #assertStillThere(path: FilePath, file: FileId): Promise<void> {
    const now = await attributesAt(this.#gateway, path, { follow: true, live: false });
    if (now?.inode === file) return;
    throw new ServiceError(
      'precondition-failed',
      `${displayPath(path)} was replaced concurrently: read it again, and retry`,
    );
  }
}

function keyedFailure(
  error: unknown,
  {
    refusal,
    onlyRepeats,
    path,
  }: { readonly refusal: ServiceError | null; readonly onlyRepeats: boolean; readonly path: FilePath },
): unknown {
  if (!(error instanceof ServiceError)) return error;
  const name = displayPath(path);
  if (error.code === 'precondition-failed') {
    // No attempt has written the file.
    if (!onlyRepeats || refusal !== null) return refusal ?? error;
    const message =
      `${name} was replaced since the first request with this ` +
      'Idempotency-Key, which did not write it: retry with a new key';
    return new ServiceError('precondition-failed', message, {}, { cause: error });
  }
  if (error.code !== 'session-expired' && error.code !== 'not-found') return error;
  const message =
    `The outcome of the write of ${name} with this Idempotency-Key is no ` +
    'longer known: read the file before writing again';
  return new ServiceError('session-expired', message, {}, { cause: error });
}

type WritePlace =
  | { readonly kind: 'append' }
  | { readonly kind: 'offset'; readonly offset: number }
  /** `total`: length of the file after the write; null if the request does not say it. */
  | {
      readonly kind: 'range';
      readonly offset: number;
      readonly length: number;
      readonly total: number | null;
    };

function checkWrite(current: Attributes, conditions: Conditions, place: WritePlace, path: FilePath): void {
  checkForChange(conditions, currentVersionOf(current), displayPath(path));
  if (place.kind !== 'range' || place.total === null) return;
  const sizeBytes = Math.max(current.sizeBytes, place.offset + place.length);
  if (sizeBytes === place.total) return;
  const why = `says that ${displayPath(path)} has ${place.total} bytes after the write, and it would have ${sizeBytes}`;
  throw new ServiceError('precondition-failed', `Content-Range ${why}`);
}

/** Returns where the bytes go. @throws ServiceError `bad-request` unless the request says it in exactly one way */
function placeOf(request: FastifyRequest, path: FilePath): WritePlace {
  const header = request.headers['content-range'];
  const offset = path.search.get('offset');
  const append = path.search.has('append');
  if ([header !== undefined, offset !== null, append].filter(Boolean).length !== 1) {
    throw new ServiceError(
      'bad-request',
      'The position of the write is missing or ambiguous: give exactly ' +
        'one of Content-Range, "?offset=N" and "?append"',
    );
  }
  if (append) return { kind: 'append' };
  if (offset !== null) {
    return { kind: 'offset', offset: integerOf(offset, 'offset', 0, FILE_BYTES_MAX - WRITE_BYTES_MAX) };
  }
  const [, first, last, total] = CONTENT_RANGE.exec(String(header)) ?? [];
  const from = Number(first);
  const length = Number(last) - from + 1;
  if (first === undefined || length < 1 || from > FILE_BYTES_MAX - WRITE_BYTES_MAX) {
    throw new ServiceError(
      'bad-request',
      'Content-Range must be "bytes FIRST-LAST/*" with FIRST at most LAST',
    );
  }
  if (total !== undefined && Number(total) <= Number(last)) {
    throw new ServiceError('bad-request', 'Content-Range ends after the total length that it gives');
  }
  return { kind: 'range', offset: from, length, total: total === undefined ? null : Number(total) };
}

function answer(reply: FastifyReply, gateway: Gateway, file: FileId, written: WriteResult): FastifyReply {
  setFileHeaders(reply, gateway, file, written);
  reply.header('etag', etagOf(file, written.contents));
  reply.header('last-modified', httpDate(written.modifiedNs));
  return reply.header(HEADER_OFFSET, String(written.offset)).code(204).send();
}
