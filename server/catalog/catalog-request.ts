import { type CatalogNumber, isCatalogNumber, ROOT_CATALOG } from '../../base/ids.ts';
import { MalformedError } from '../../wire/bytes.ts';
import { parseJsonObject } from '../../wire/json.ts';

/** The payload of a call between servers about a volume's catalog. */
export function encodeCatalogRequest(number: CatalogNumber): Uint8Array {
  return Buffer.from(JSON.stringify({ number }));
}

/** @throws MalformedError */
export function decodeCatalogRequest(payload: Uint8Array): CatalogNumber {
  const number = parseJsonObject(Buffer.from(payload).toString('utf8'))?.number;
  if (isCatalogNumber(number) && number !== ROOT_CATALOG) return number;
  throw new MalformedError('A request about the catalog of a volume names none');
}
