/** The order of listings: by UTF-8 bytes. UTF-16 sorts differently beyond the first 65,536 characters. */
export function namesCompare(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
