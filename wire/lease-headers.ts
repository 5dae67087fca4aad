/** Request header: the holder's secret, a random integer from 1 to 2^53 − 1. */
export const HEADER_SESSION = 'leasehold-session';
/** Response header: the holder's fencing token; 0 without a holder. */
export const HEADER_TOKEN = 'leasehold-token';
/**
 * Request header of a change of keys: larger for each change of a session. A server answers one that is not larger than
 * the last, and changes nothing: it is a repetition, or arrives late. Earlier releases ignore it.
 */
export const HEADER_CHANGE = 'leasehold-change';
