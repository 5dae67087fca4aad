/** The order of listings: by the bytes of UTF-8. That of UTF-16 is another one beyond the first 65,536 characters. */
export function namesCompare(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
