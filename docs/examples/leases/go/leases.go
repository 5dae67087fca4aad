// Named leases of Leasehold over HTTP. Go 1.19 or later; standard library only.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	renewShare = 0.5
	// A request without an answer after this share of the lease goes to another server.
	attemptShare = 0.125
	// The lease counts as lost this share of its length before its end.
	marginShare = 0.1
	retryPause  = 50 * time.Millisecond
	afterEnd    = 20 * time.Millisecond
	// How long a request is repeated at the servers.
	patience = 30 * time.Second
)

// ErrLost says that the lease is over: stop what it protects.
var ErrLost = errors.New("the lease is over")

// Problem is a refusal. Its code is one of docs/errors.md.
type Problem struct {
	Status int     `json:"status"`
	Code   string  `json:"code"`
	Detail string  `json:"detail"`
	Holder *Holder `json:"holder"`
}

func (problem *Problem) Error() string { return problem.Code + ": " + problem.Detail }

// Holder is the present holder of a lease.
type Holder struct {
	Owner       string  `json:"owner"`
	Token       int64   `json:"token"`
	RemainingMs float64 `json:"remainingMs"`
}

// State is the public state of a lease.
type State struct {
	Held        bool              `json:"held"`
	Token       int64             `json:"token"`
	RemainingMs float64           `json:"remainingMs"`
	Keys        map[string]string `json:"keys"`
}

type grant struct {
	Token       int64   `json:"token"`
	RemainingMs float64 `json:"remainingMs"`
}

// moment is one on both clocks: the monotonic one stops while the machine sleeps, the wall clock may be set. A lease is
// over as soon as one of them says so.
type moment struct{ both time.Time }

func now() moment { return moment{time.Now()} }

func (at moment) add(span time.Duration) moment { return moment{at.both.Add(span)} }

func (at moment) left() time.Duration {
	present := time.Now()
	monotonic := at.both.Sub(present)
	wall := at.both.Round(0).Sub(present.Round(0))
	if wall < monotonic {
		return wall
	}
	return monotonic
}

// Client sends requests to any of the servers, and to the next one if one fails.
type Client struct {
	Servers []string
	Token   string
	HTTP    *http.Client

	preferred atomic.Int64
}

// Server is the one that gets the next request.
func (client *Client) Server() string {
	return client.Servers[int(client.preferred.Load())%len(client.Servers)]
}

// Acquire waits until the lease is free. Its end is counted from before the request was sent.
func (client *Client) Acquire(
	ctx context.Context, name, owner string, ttl time.Duration, keys map[string]string,
) (*Lease, error) {
	drawn, err := rand.Int(rand.Reader, big.NewInt(1<<53-1))
	if err != nil {
		return nil, err
	}
	session := drawn.Int64() + 1
	body := map[string]any{"owner": owner, "ttlMs": ttl.Milliseconds()}
	if keys != nil {
		body["keys"] = keys
	}
	for {
		var granted grant
		sent, err := client.change(ctx, "POST", leasePath(name), session, 0, body, ttl, &granted)
		var problem *Problem
		if errors.As(err, &problem) && problem.Code == "lease-taken" && problem.Holder != nil {
			client.waitUntilFree(ctx, name, milliseconds(problem.Holder.RemainingMs)+afterEnd)
			if err = ctx.Err(); err == nil {
				continue
			}
		}
		if err != nil {
			// An attempt without an answer may have been granted.
			releasing, cancel := context.WithTimeout(context.Background(), time.Second)
			client.change(releasing, "DELETE", leasePath(name), session, 0, nil, time.Second, nil)
			cancel()
			return nil, err
		}
		lease := newLease(client, name, session, ttl, granted, sent)
		if lease.Held() {
			return lease, nil
		}
		// The answer took longer than the lease. The same session is granted a lease again.
		lease.stop()
	}
}

// Show returns the state of a lease from a majority of its voters.
func (client *Client) Show(ctx context.Context, name string) (State, error) {
	var state State
	_, err := client.change(ctx, "GET", leasePath(name), 0, 0, nil, 6*time.Second, &state)
	return state, err
}

// waitUntilFree returns when the lease may be free: reported as such, or after the limit.
func (client *Client) waitUntilFree(ctx context.Context, name string, limit time.Duration) {
	watching, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := client.watch(watching, name, func(state State) bool { return state.Held }); err != nil {
		if watching.Err() == nil {
			client.preferred.Add(1)
			sleep(watching, retryPause)
		}
	}
	// Clients that wait for one lease do not all ask in the same moment.
	sleep(ctx, time.Duration(mathrand.Int63n(int64(retryPause))))
}

// watch calls next with each reported state, until it returns false.
func (client *Client) watch(ctx context.Context, name string, next func(State) bool) error {
	request, err := http.NewRequestWithContext(ctx, "GET", client.Server()+leasePath(name)+"/watch", nil)
	if err != nil {
		return err
	}
	client.authorize(request)
	answer, err := client.HTTP.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return problemOf(answer)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "data: ") {
			continue // the kind of the event, or a heartbeat
		}
		var state State
		if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &state); err != nil {
			return err
		}
		if !next(state) {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// change repeats a request until there is an answer, and returns the moment before the answered one was sent.
func (client *Client) change(
	ctx context.Context, method, path string, session, number int64, body any, attempt time.Duration, result any,
) (moment, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return moment{}, err
		}
	}
	for {
		sent := now()
		err := client.attempt(limited, method, path, session, number, content, attempt, result)
		var problem *Problem
		if err == nil || (errors.As(err, &problem) && problem.Status != http.StatusServiceUnavailable) {
			return sent, err
		}
		client.preferred.Add(1)
		sleep(limited, retryPause)
		if limited.Err() != nil {
			return sent, fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
}

func (client *Client) attempt(
	ctx context.Context, method, path string, session, number int64, content []byte, limit time.Duration, result any,
) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var body io.Reader
	if content != nil {
		body = bytes.NewReader(content)
	}
	request, err := http.NewRequestWithContext(ctx, method, client.Server()+path, body)
	if err != nil {
		return err
	}
	client.authorize(request)
	if content != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if session != 0 {
		request.Header.Set("Leasehold-Session", strconv.FormatInt(session, 10))
	}
	if number != 0 {
		request.Header.Set("Leasehold-Change", strconv.FormatInt(number, 10))
	}
	answer, err := client.HTTP.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 300 {
		return problemOf(answer)
	}
	if result == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(result)
}

func (client *Client) authorize(request *http.Request) {
	if client.Token != "" {
		request.Header.Set("Authorization", "Bearer "+client.Token)
	}
}

// Lease is held by this process, and renewed until it is released or lost.
type Lease struct {
	Name string
	// Token is the fencing token: the resource refuses a smaller one than it has seen.
	Token int64
	// Lost is closed when the lease is lost, late in a process that was stopped. Check reads the clock.
	Lost <-chan struct{}

	client  *Client
	session int64
	ttl     time.Duration
	lose    func()
	ending  context.Context
	stop    context.CancelFunc

	mutex   sync.Mutex
	end     moment
	changes int64
}

func newLease(
	client *Client, name string, session int64, ttl time.Duration, granted grant, sent moment,
) *Lease {
	lost := make(chan struct{})
	var once sync.Once
	ending, stop := context.WithCancel(context.Background())
	lease := &Lease{
		Name: name, Token: granted.Token, Lost: lost, client: client, session: session, ttl: ttl,
		lose:   func() { once.Do(func() { close(lost) }) },
		ending: ending, stop: stop, end: sent.add(milliseconds(granted.RemainingMs)),
	}
	go lease.renew()
	return lease
}

// End is when the lease ends at the latest known renewal.
func (lease *Lease) End() time.Time {
	lease.mutex.Lock()
	defer lease.mutex.Unlock()
	return lease.end.both
}

// Held reads the clock: it is right even in a process that was stopped for a while.
func (lease *Lease) Held() bool {
	select {
	case <-lease.Lost:
		return false
	default:
		return lease.left() > 0
	}
}

// Check is called right before each action.
func (lease *Lease) Check() error {
	if lease.Held() {
		return nil
	}
	return fmt.Errorf("%w: %q, token %d", ErrLost, lease.Name, lease.Token)
}

// SetKey attaches a value, which every client may read. Not to be called from two goroutines at a time.
func (lease *Lease) SetKey(key, value string) error {
	// Numbered, so that a repetition that arrives late does not undo a later change.
	lease.changes++
	path := leasePath(lease.Name) + "/keys/" + url.PathEscape(key)
	return lease.change("PUT", path, lease.changes, map[string]any{"value": value})
}

// Release is called when nothing relies on the lease any more.
func (lease *Lease) Release() error {
	lease.stop()
	_, err := lease.client.change(
		context.Background(), "DELETE", leasePath(lease.Name), lease.session, 0, nil, lease.ttl, nil)
	var problem *Problem
	if errors.As(err, &problem) && problem.Code == "lease-lost" {
		return nil
	}
	return err
}

func (lease *Lease) left() time.Duration {
	lease.mutex.Lock()
	defer lease.mutex.Unlock()
	return lease.end.left() - time.Duration(marginShare*float64(lease.ttl))
}

func (lease *Lease) renew() {
	for {
		// In short steps: the clock may have advanced while the machine slept.
		untilRenewal := lease.left() - time.Duration((renewShare-marginShare)*float64(lease.ttl))
		if untilRenewal > time.Second {
			untilRenewal = time.Second
		}
		sleep(lease.ending, untilRenewal)
		if lease.ending.Err() != nil {
			return
		}
		if !lease.Held() {
			lease.lose()
			return
		}
		if lease.left() > time.Duration((renewShare-marginShare)*float64(lease.ttl)) {
			continue
		}
		err := lease.change("PATCH", leasePath(lease.Name), 0, map[string]any{"ttlMs": lease.ttl.Milliseconds()})
		if err != nil {
			sleep(lease.ending, retryPause)
		}
	}
}

func (lease *Lease) change(method, path string, number int64, body any) error {
	if err := lease.Check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(lease.ending, lease.left())
	defer cancel()
	attempt := time.Duration(attemptShare * float64(lease.ttl))
	var granted grant
	sent, err := lease.client.change(ctx, method, path, lease.session, number, body, attempt, &granted)
	var problem *Problem
	if errors.As(err, &problem) && problem.Code == "lease-lost" {
		lease.lose()
	}
	if err != nil {
		return err
	}
	if granted.Token != lease.Token {
		lease.lose()
		return fmt.Errorf("%w: acquired again, with token %d", ErrLost, granted.Token)
	}
	lease.mutex.Lock()
	defer lease.mutex.Unlock()
	// An end that was counted from an earlier moment may be later, and is valid.
	if end := sent.add(milliseconds(granted.RemainingMs)); end.left() > lease.end.left() {
		lease.end = end
	}
	return nil
}

// leasePath has the name as one segment.
func leasePath(name string) string { return "/v1/leases/" + url.PathEscape(name) }

func problemOf(answer *http.Response) error {
	problem := &Problem{Status: answer.StatusCode, Code: "internal", Detail: answer.Status}
	// What is no problem document is the answer of a proxy.
	if err := json.NewDecoder(answer.Body).Decode(problem); err != nil {
		problem.Detail = answer.Status
	}
	problem.Status = answer.StatusCode
	return problem
}

func milliseconds(count float64) time.Duration {
	return time.Duration(count * float64(time.Millisecond))
}

func sleep(ctx context.Context, span time.Duration) {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
