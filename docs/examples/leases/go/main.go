// Leader election: one of several programs leads, and increments the value of the resource, which refuses old tokens.
//
//	go run . --servers http://127.0.0.1:7401,http://127.0.0.1:7402 --resource http://127.0.0.1:7500
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var errRefused = errors.New("a later holder was at the resource")

var (
	servers   = flag.String("servers", "", "URLs of the servers, separated by commas")
	resource  = flag.String("resource", "", "URL of fenced_resource.py")
	name      = flag.String("name", "examples/leader", "name of the lease")
	owner     = flag.String("owner", "go", "name of this program for people")
	ttlMs     = flag.Int("ttl-ms", 5000, "length of the lease")
	acts      = flag.Int("acts", 5, "actions on the resource with each acquisition")
	tokenFile = flag.String("token-file", "", "token for the servers")
	authority = flag.String("ca", "", "authority of the servers")
)

func main() {
	flag.Parse()
	client, err := newClient()
	if err != nil {
		log.Fatal(err)
	}
	// SIGTERM ends the work in good order, also while it waits for the lease.
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ttl := time.Duration(*ttlMs) * time.Millisecond
	for ctx.Err() == nil {
		lease, err := client.Acquire(ctx, *name, *owner, ttl, map[string]string{"language": "go"})
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		report("acquired", lease, map[string]any{"server": client.Server(), "owner": *owner})
		if err := lead(ctx, lease); err != nil {
			log.Fatal(err)
		}
		if err := lease.Release(); err != nil {
			log.Print(err) // It ends by itself.
		}
		// Longer than those who wait pause, so that they get the lease.
		sleep(ctx, 100*time.Millisecond)
	}
}

// lead acts several times, and stops at once when the lease is lost.
func lead(ctx context.Context, lease *Lease) error {
	for act := 0; act < *acts && ctx.Err() == nil; act++ {
		err := increment(lease)
		switch {
		case errors.Is(err, errRefused):
			report("refused", lease, map[string]any{"until": milli(lease.End())})
			return nil
		case errors.Is(err, ErrLost):
			report("lost", lease, map[string]any{"until": milli(lease.End())})
			return nil
		case err != nil:
			return err
		}
		sleep(ctx, 5*time.Millisecond)
	}
	// Before the release is sent, another holder cannot begin.
	until := time.Now()
	if end := lease.End(); end.Before(until) {
		until = end
	}
	report("released", lease, map[string]any{"until": milli(until)})
	return nil
}

// increment is only right if no other program comes between.
func increment(lease *Lease) error {
	value, err := act(lease, http.MethodGet, "")
	if err != nil {
		return err
	}
	_, err = act(lease, http.MethodPut, strconv.FormatInt(value+1, 10))
	return err
}

func act(lease *Lease, method, body string) (int64, error) {
	if err := lease.Check(); err != nil {
		return 0, err
	}
	request, err := http.NewRequest(method, *resource+"/", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Lease-Tokens", fmt.Sprintf("%s=%d", lease.Name, lease.Token))
	request.Header.Set("Sender", *owner)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusConflict {
		return 0, errRefused
	}
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s %s: %s", method, *resource, answer.Status)
	}
	var content struct {
		Value int64 `json:"value"`
	}
	err = json.NewDecoder(answer.Body).Decode(&content)
	return content.Value, err
}

func newClient() (*Client, error) {
	client := &Client{Servers: strings.Split(*servers, ","), HTTP: &http.Client{}}
	if *tokenFile != "" {
		token, err := os.ReadFile(*tokenFile)
		if err != nil {
			return nil, err
		}
		client.Token = strings.TrimSpace(string(token))
	}
	if *authority != "" {
		certificates, err := os.ReadFile(*authority)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(certificates) {
			return nil, fmt.Errorf("%s has no certificate", *authority)
		}
		client.HTTP.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	}
	return client, nil
}

func report(event string, lease *Lease, more map[string]any) {
	more["event"] = event
	more["at"] = milli(time.Now())
	more["tokens"] = map[string]int64{lease.Name: lease.Token}
	if err := json.NewEncoder(os.Stdout).Encode(more); err != nil {
		log.Fatal(err)
	}
}

// milli is a moment of the wall clock, which the reports of all languages share.
func milli(at time.Time) float64 { return float64(at.UnixMicro()) / 1000 }
