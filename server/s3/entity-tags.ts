/** Clients of S3 send entity tags also without quotes. */
export function existingEtag(text: string): string {
  const given = text.trim();
  return given === '*' || given.includes('"') ? given : `"${given}"`;
}
