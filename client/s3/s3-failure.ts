import { utf8Text } from '../../base/utf8.ts';
import { childText, XmlFault, type XmlNode, xmlRead } from '../../platform/s3-xml.ts';
import {
  CommandFailure,
  EXIT_FAILED,
  EXIT_NOT_FOUND,
  EXIT_PRECONDITION,
  EXIT_TEMPORARY,
  EXIT_UNAUTHORIZED,
} from '../terminal/failure.ts';

const MESSAGE_LENGTH_MAX = 500;

/** A request that a store of S3 refused. */
export class S3Refusal extends CommandFailure {
  readonly status: number;
  /** Of S3, such as `NoSuchKey`. */
  readonly code: string;

  constructor(status: number, code: string, exit: number, message: string, hint: string) {
    super(exit, message, hint);
    this.status = status;
    this.code = code;
  }
}

/** The head of an answer, and what is known of the request. */
export interface RefusedRequest {
  /** What the request does to `place`, such as `read`. */
  readonly what: string;
  readonly place: string;
  readonly bucket: string;
  readonly status: number;
  readonly header: (name: string) => string | undefined;
  readonly nowMs: number;
}

/** What the document of an error says. */
export interface S3ErrorText {
  readonly code: string;
  readonly message: string;
}

export function s3Refusal(request: RefusedRequest, { code, message }: S3ErrorText): S3Refusal {
  const { what, place, status } = request;
  const text = message === '' ? code : `${code}: ${message}`;
  return new S3Refusal(
    status,
    code,
    exitOf(status, code),
    `Cannot ${what} ${place}: the store answered ${text}`,
    hintOf(request, code),
  );
}

export function errorTextOf(error: XmlNode): S3ErrorText {
  const message = (childText(error, 'Message') ?? '').trim().replaceAll(/\s+/g, ' ');
  return {
    code: childText(error, 'Code') ?? '',
    message: message.slice(0, MESSAGE_LENGTH_MAX).replace(/\.$/, ''),
  };
}

/** @returns what an answer says; the status alone if it has no document, as those of proxies */
export function errorTextIn(status: number, document: Uint8Array): S3ErrorText {
  const ofStatus = { code: `HTTP status ${status}`, message: '' };
  try {
    return errorTextOf(xmlRead((utf8Text(document) ?? '').trim(), 'Error'));
  } catch (fault) {
    if (fault instanceof XmlFault) return ofStatus;
    throw fault;
  }
}

/** Codes of requests that may succeed if they are repeated, beside statuses from 500 on. */
const TEMPORARY: ReadonlySet<string> = new Set([
  ...['RequestTimeout', 'SlowDown', 'InternalError', 'ServiceUnavailable'],
  ...['OperationAborted', 'ConditionalRequestConflict'],
]);

function exitOf(status: number, code: string): number {
  if (TEMPORARY.has(code) || status === 408 || status === 429) return EXIT_TEMPORARY;
  if (status === 501 || status === 507) return EXIT_FAILED;
  if (status >= 500) return EXIT_TEMPORARY;
  if (code === 'QuotaExceeded') return EXIT_FAILED;
  if (status === 401 || status === 403 || UNAUTHORIZED.test(code)) return EXIT_UNAUTHORIZED;
  if (status === 404) return EXIT_NOT_FOUND;
  return status === 409 || status === 412 ? EXIT_PRECONDITION : EXIT_FAILED;
}

/** With other statuses, too. */
const UNAUTHORIZED = /^(?:AccessDenied|ExpiredToken|InvalidToken|TokenRefreshRequired)$/;

function hintOf({ bucket, header, nowMs }: RefusedRequest, code: string): string {
  switch (code) {
    case 'NoSuchBucket':
      return `create the bucket "${bucket}" first, or check its name, the endpoint and the region`;
    case 'InvalidAccessKeyId':
    case 'SignatureDoesNotMatch':
      return 'check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and that they are those of this endpoint';
    case 'ExpiredToken':
    case 'InvalidToken':
    case 'TokenRefreshRequired':
      return 'get new temporary credentials, and set AWS_SESSION_TOKEN with them';
    case 'AccessDenied':
    case 'AllAccessDisabled':
      return 'the access key needs the right to list the bucket, and to read and write its objects';
    case 'RequestTimeTooSkewed':
      return skewHint(header('date'), nowMs);
    case 'PermanentRedirect':
    case 'AuthorizationHeaderMalformed':
    case 'IllegalLocationConstraintException':
    case 'HTTP status 301': {
      const region = header('x-amz-bucket-region');
      return `set AWS_REGION to the region of the bucket${region === undefined ? '' : `, ${region}`}`;
    }
    case 'QuotaExceeded':
    case 'InsufficientStorage':
      return 'remove something there, or raise the quota';
    default:
      return '';
  }
}

function skewHint(date: string | undefined, nowMs: number): string {
  const minutes = Math.round((nowMs - Date.parse(date ?? '')) / 60_000);
  const by = Number.isNaN(minutes)
    ? ''
    : `: it is ${Math.abs(minutes)} minutes ${minutes < 0 ? 'behind' : 'ahead of'} the store's`;
  return `synchronize the clock of this machine (NTP)${by}`;
}
