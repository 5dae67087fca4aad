import type { IncomingHttpHeaders } from 'node:http';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, type FileId, isCatalogNumber, isFileId } from '../../base/ids.ts';
import { HEADER_CATALOG, HEADER_FORWARDED } from '../../wire/http-api.ts';
import type { CallOptions } from '../routing/router.ts';

const DECIMAL = /^(?:0|[1-9][0-9]{0,15})$/;

/** Parses a decimal integer from `minimum` to `maximum`. @throws ServiceError `bad-request` for other text */
export function integerOf(
  text: unknown,
  name: string,
  minimum = 0,
  maximum: number = Number.MAX_SAFE_INTEGER,
): number {
  const value = typeof text === 'string' && DECIMAL.test(text) ? Number(text) : Number.NaN;
  if (!Number.isSafeInteger(value) || value < minimum || value > maximum) {
    throw new ServiceError('bad-request', `"${name}" must be an integer from ${minimum} to ${maximum}`);
  }
  return value;
}

export function fileIdOf(text: unknown): FileId {
  const value = integerOf(text, 'file', 1);
  if (!isFileId(value)) throw new ServiceError('bad-request', '"file" must be a file number');
  return value;
}

/** Returns the options of a call by its headers: a request that a peer has forwarded is not forwarded again. */
export function callOptionsOf(headers: IncomingHttpHeaders): CallOptions {
  const catalog = catalogOf(headers);
  return {
    forwarded: headers[HEADER_FORWARDED] !== undefined,
    ...(catalog === null ? {} : { catalog }),
  };
}

/** @returns the catalog that a request names; null if it names none @throws ServiceError `bad-request` */
export function catalogOf({ [HEADER_CATALOG]: text }: IncomingHttpHeaders): CatalogNumber | null {
  if (text === undefined) return null;
  const catalog = Number(text);
  if (isCatalogNumber(catalog)) return catalog;
  throw new ServiceError('bad-request', `The header "${HEADER_CATALOG}" is no number of a catalog`);
}
