import { type CatalogNumber, isCatalogNumber } from './ids.ts';

/** What the receiver of an error does next. */
export type Remedy = 'retry' | 'redirect' | 'reopen' | 'give-up';

interface ErrorTraits {
  readonly status: number;
  readonly exit: number;
  readonly remedy: Remedy;
  /** Title of the problem document, the same for every occurrence. */
  readonly title: string;
}

/** All error codes. A test compares them with `docs/errors.md`. */
export const ERRORS = {
  'bad-request': { status: 400, exit: 2, remedy: 'give-up', title: 'The request is malformed' },
  unauthorized: { status: 401, exit: 6, remedy: 'give-up', title: 'Authentication is missing or invalid' },
  forbidden: { status: 403, exit: 6, remedy: 'give-up', title: 'The caller lacks permission' },
  'not-found': { status: 404, exit: 3, remedy: 'give-up', title: 'No such volume, file or directory' },
  exists: { status: 409, exit: 4, remedy: 'give-up', title: 'The name is taken' },
  'not-directory': { status: 409, exit: 4, remedy: 'give-up', title: 'A directory is needed here' },
  'is-directory': { status: 409, exit: 4, remedy: 'give-up', title: 'A file is needed here' },
  'not-empty': { status: 409, exit: 4, remedy: 'give-up', title: 'The directory or volume is not empty' },
  'precondition-failed': { status: 412, exit: 4, remedy: 'give-up', title: 'A precondition does not hold' },
  'range-unsatisfiable': {
    status: 416,
    exit: 4,
    remedy: 'give-up',
    title: 'The range lies outside the file',
  },
  'digest-mismatch': {
    status: 400,
    exit: 8,
    remedy: 'give-up',
    title: 'The bytes do not match their digest',
  },
  'name-too-long': { status: 400, exit: 2, remedy: 'give-up', title: 'A name is longer than 255 bytes' },
  'symlink-loop': { status: 409, exit: 4, remedy: 'give-up', title: 'Too many symbolic links on the way' },
  'cross-volume': {
    status: 409,
    exit: 4,
    remedy: 'give-up',
    title: 'Source and target are on different volumes, or count against different quotas',
  },
  junction: { status: 409, exit: 4, remedy: 'give-up', title: 'The path leads into another volume' },
  attached: { status: 409, exit: 4, remedy: 'give-up', title: 'A volume is attached' },
  'too-many-links': { status: 409, exit: 4, remedy: 'give-up', title: 'The file has too many links' },
  'no-attribute': { status: 404, exit: 3, remedy: 'give-up', title: 'No such extended attribute' },
  'too-large': { status: 413, exit: 2, remedy: 'give-up', title: 'The request is larger than the limit' },
  'read-only': { status: 409, exit: 4, remedy: 'give-up', title: 'It can only be read' },
  protected: { status: 409, exit: 4, remedy: 'give-up', title: 'It is immutable, append-only or retained' },
  sealed: { status: 409, exit: 4, remedy: 'give-up', title: 'The file is sealed' },
  'session-expired': { status: 409, exit: 5, remedy: 'reopen', title: 'The session is no longer remembered' },
  'lease-taken': { status: 409, exit: 4, remedy: 'give-up', title: 'Another client holds the lease' },
  'lease-lost': { status: 409, exit: 4, remedy: 'give-up', title: 'The lease ended or has another holder' },
  'fence-lost': {
    status: 409,
    exit: 4,
    remedy: 'give-up',
    title: "The operation's fence is no longer valid",
  },
  locked: { status: 409, exit: 4, remedy: 'give-up', title: 'Another owner has a lock on the file' },
  deadlock: {
    status: 409,
    exit: 4,
    remedy: 'give-up',
    title: 'Waiting for the lock would deadlock',
  },
  'lock-limit': { status: 409, exit: 4, remedy: 'give-up', title: 'There are too many locks' },
  'not-primary': { status: 421, exit: 5, remedy: 'redirect', title: 'Another server is the primary' },
  'no-majority': { status: 503, exit: 5, remedy: 'retry', title: 'Too few servers are reachable' },
  recovering: {
    status: 503,
    exit: 5,
    remedy: 'retry',
    title: 'The servers wait for leases from before their restart to end',
  },
  busy: {
    status: 503,
    exit: 5,
    remedy: 'retry',
    title: 'The server has reached a limit, or a change must wait',
  },
  moving: { status: 503, exit: 5, remedy: 'retry', title: 'The volume moves to another catalog' },
  unknown: { status: 503, exit: 5, remedy: 'retry', title: 'It is not known whether the operation happened' },
  'clock-fault': { status: 503, exit: 5, remedy: 'retry', title: "A server's clock is out of bounds" },
  'no-space': { status: 507, exit: 1, remedy: 'give-up', title: 'The disk is full' },
  'quota-exceeded': {
    status: 507,
    exit: 1,
    remedy: 'give-up',
    title: 'The quota of the volume or of a directory is used up',
  },
  integrity: {
    status: 500,
    exit: 8,
    remedy: 'give-up',
    title: 'Stored data does not match its checksum on any replica',
  },
  storage: { status: 500, exit: 1, remedy: 'give-up', title: 'A disk operation failed' },
  internal: { status: 500, exit: 1, remedy: 'give-up', title: 'An unexpected failure, logged by the server' },
} as const satisfies Record<string, ErrorTraits>;

export type ErrorCode = keyof typeof ERRORS;

export function isErrorCode(text: unknown): text is ErrorCode {
  return typeof text === 'string' && Object.hasOwn(ERRORS, text);
}

/** Data in an error for the receiving program. */
export interface ErrorDetails {
  /** Ids of the servers that did not answer. */
  readonly unreachable?: readonly string[];
  /** Id of the primary to ask. If the server lacks space, its own id means that no other server has space. */
  readonly primary?: string;
  readonly retryAfterMs?: number;
  /** The holder of the requested lease. */
  readonly holder?: HolderDetails;
  /** Ids of catalog members whose release does not know the command; nothing was executed. */
  readonly outdated?: readonly string[];
  /** The volume is in another catalog now: the sender's list of catalogs is outdated. */
  readonly elsewhere?: true;
  /**
   * The volume has left the catalog that refused the request for this one: the former has not executed the request, and
   * never will.
   */
  readonly movedTo?: CatalogNumber;
  /** Where the path continues. */
  readonly junction?: JunctionDetails;
}

/** The end of a path in another volume, which is attached at a directory on the path. */
export interface JunctionDetails {
  readonly volume: string;
  /** Number of the volume's catalog. */
  readonly catalog: number;
  /** The directory at which it is attached. */
  readonly inode: number;
  /** In the volume, from its root. */
  readonly path: string;
}

/** @returns the details in what another process sent; null if they are none */
export function junctionDetailsOf(value: unknown): JunctionDetails | null {
  if (typeof value !== 'object' || value === null) return null;
  const { volume, catalog, inode, path } = value as Partial<JunctionDetails>;
  if (typeof volume !== 'string' || typeof path !== 'string') return null;
  if (!Number.isSafeInteger(catalog) || !Number.isSafeInteger(inode)) return null;
  return { volume, catalog, inode, path } as JunctionDetails;
}

/** Where a refused request continues. */
export type RedirectDetails = Pick<ErrorDetails, 'elsewhere' | 'movedTo' | 'junction'>;

/** @returns those that are present */
export function redirectDetailsOf({ elsewhere, movedTo, junction }: RedirectDetails): RedirectDetails {
  return {
    ...(elsewhere === undefined ? {} : { elsewhere }),
    ...(movedTo === undefined ? {} : { movedTo }),
    ...(junction === undefined ? {} : { junction }),
  };
}

/** @returns those that are valid in what another process sent */
export function parseRedirectDetails(sent: Readonly<Record<string, unknown>>): RedirectDetails {
  const junction = junctionDetailsOf(sent.junction);
  return {
    ...(sent.elsewhere === true ? { elsewhere: true } : {}),
    ...(isCatalogNumber(sent.movedTo) ? { movedTo: sent.movedTo } : {}),
    ...(junction === null ? {} : { junction }),
  };
}

export interface HolderDetails {
  readonly owner: string;
  readonly token: number;
  readonly remainingMs: number;
}

/** A failure without a bug: it crosses the wire, and the caller acts on its remedy. */
export class ServiceError extends Error {
  override readonly name = 'ServiceError';
  readonly code: ErrorCode;
  readonly details: ErrorDetails;

  /** @param message action and state, without a period: `Cannot write file 12: …` */
  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.details = details;
  }

  get remedy(): Remedy {
    return ERRORS[this.code].remedy;
  }
}

/** Whether a request was refused for good: it was not executed, and another attempt would be refused, too. */
export function isRefusal(error: unknown): error is ServiceError {
  return error instanceof ServiceError && error.remedy === 'give-up';
}
