/** Request header: the holder's secret, a random integer from 1 to 2^53 − 1. */
export const HEADER_SESSION = 'leasehold-session';
/** Response header: the holder's fencing token; 0 without a holder. */
export const HEADER_TOKEN = 'leasehold-token';
/**
 * Request header of a change of keys: larger for each change of a session. A server changes nothing for the number of
 * the last change, which is a repetition, and refuses a smaller one, which comes too late. Earlier releases ignore it.
 */
export const HEADER_CHANGE = 'leasehold-change';
