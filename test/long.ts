/** `npm run test:long` plays all tests at full length; `npm test` plays short forms, in which each rule is tried once. */
export const isLong = process.env.LONG === '1';

/** Servers of a cluster whose tests ask for neither replication nor fail-over. */
export const SERVERS_OF_FORM = isLong ? 3 : 1;

/**
 * Why `npm test` passes a test over.
 *
 * @param shownBy the test that shows the same rule in `npm test`
 */
export function onlyLong(shownBy: string): string | false {
  return isLong ? false : `npm run test:long plays it; ${shownBy} shows its rule here`;
}
