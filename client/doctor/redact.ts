const REMOVED = '[removed]';

const NAMED =
  /((?:[\w-]*(?:token|secret|passw(?:or)?d|credential|authorization|cookie|private[-_]?key|api[-_]?key)[\w-]*)["']?\s*[=:]\s*)(\[[^\]]*\]|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;}]+)/gi;
/** By their form, wherever they are: tokens, capabilities, and the values of a token file. */
const TOKEN = /\blh_[0-9a-f]{12}_[A-Za-z0-9_-]+/g;
const CAPABILITY = /\b[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{43}\b/g;
const TOKEN_FILE = /("(?:keys|hash)"\s*:\s*)(\[[^\]]*\]|"[^"]*")/g;
/** A URL whose fragment is a key for commands to servers. */
const CONTROL = /(LEASEHOLD_DEV_CONTROL=[^#\s]*#)\S+/g;
const BEARER = /\b((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]+/gi;
const PRIVATE_KEY = /-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)/g;
const URL_SECRET = /(\b[a-z][a-z0-9+.-]*:\/\/)[^\s/@]+@/gi;

/** @returns the text without secrets: tokens, capabilities, passwords, private keys */
export function redacted(text: string): string {
  return text
    .replace(PRIVATE_KEY, REMOVED)
    .replace(TOKEN, REMOVED)
    .replace(CAPABILITY, REMOVED)
    .replace(TOKEN_FILE, `$1"${REMOVED}"`)
    .replace(CONTROL, `$1${REMOVED}`)
    .replace(BEARER, `$1${REMOVED}`)
    .replace(NAMED, (_all, name: string, value: string) => {
      const quote = /^["']/.exec(value)?.[0] ?? '';
      return `${name}${quote}${REMOVED}${quote}`;
    })
    .replace(URL_SECRET, `$1${REMOVED}@`);
}
