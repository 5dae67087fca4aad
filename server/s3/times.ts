/** Nanoseconds since 1970 as in answers of S3: whole seconds, as in `Last-Modified`. */
export function httpSecondsIso(timeNs: string): string {
  return new Date(Number(BigInt(timeNs) / 1_000_000_000n) * 1000).toISOString();
}

export function isoOfMs(timeMs: number): string {
  return new Date(timeMs).toISOString();
}
