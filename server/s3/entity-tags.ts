/** Clients of S3 send entity tags also without quotes, or without one of them. */
export function existingEtag(text: string): string {
  const given = text.trim();
  const [, tag] = /^"?([^",]*)"?$/.exec(given) ?? [];
  return given === '*' || tag === undefined ? given : `"${tag}"`;
}
