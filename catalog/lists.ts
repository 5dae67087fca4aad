/** Lists of words in the tables, separated by commas. */

/** Sorted and without repetitions, so that equal sets are equal texts. */
export function joinList(words: readonly string[] = []): string {
  return [...new Set(words)].toSorted().join(',');
}

export function splitList(text: string): string[] {
  return text === '' ? [] : text.split(',');
}
