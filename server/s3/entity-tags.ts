/** Clients of S3 send entity tags also without quotes, or without one of them. @returns undefined for no tag */
export function quotedTag<Text extends string | undefined>(text: Text): Text | string {
  const given = text?.trim();
  const [, tag] = /^"?([^",]*)"?$/.exec(given ?? '') ?? [];
  return given === undefined ? text : given === '*' || tag === undefined ? given : `"${tag}"`;
}
