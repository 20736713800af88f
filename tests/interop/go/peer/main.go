// A go-waku node as a peer of fairway's tests: settings as JSON in its argument, commands as JSON lines on stdin, events
// as JSON lines on stdout, the log on stderr. Ends with stdin. It listens on loopback and asks no clock or gateway.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"go.uber.org/zap/zapcore"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"github.com/waku-org/go-waku/waku/v2/node"
	"github.com/waku-org/go-waku/waku/v2/protocol"
	"github.com/waku-org/go-waku/waku/v2/protocol/filter"
	"github.com/waku-org/go-waku/waku/v2/protocol/lightpush"
	"github.com/waku-org/go-waku/waku/v2/protocol/pb"
	"github.com/waku-org/go-waku/waku/v2/protocol/relay"
	"github.com/waku-org/go-waku/waku/v2/protocol/store"
	"github.com/waku-org/go-waku/waku/v2/utils"
)

const (
	commandTimeout = 60 * time.Second
	maxLineBytes   = 1 << 24
	filterTimeout  = 5 * time.Minute
)

// settings say what kind of node this is. A client asks others; any other node relays and serves.
type settings struct {
	Cluster uint16 `json:"cluster"`
	Shard   uint16 `json:"shard"`
	Port    int    `json:"port"`    // 0: any
	WsPort  int    `json:"ws_port"` // 0: no WebSocket
	Key     string `json:"key"`     // hex; empty: a new one
	Client  bool   `json:"client"`
	Pushes  int    `json:"pushes"` // light push requests a second of each peer
}

// command is one line of stdin; which fields count depends on Do.
type command struct {
	Do       string `json:"do"`
	Peer     string `json:"peer"`
	Topic    string `json:"topic"` // content topic
	Payload  string `json:"payload"`
	PageSize uint64 `json:"pageSize"`
}

// world is the node and what every command needs of it.
type world struct {
	node        *node.WakuNode
	pubsubTopic string
	saying      sync.Mutex
}

func main() {
	w := &world{}
	if err := w.run(); err != nil {
		w.say("failed", fields{"detail": err.Error()})
		os.Exit(1)
	}
}

func (w *world) run() error {
	given := settings{Pushes: 1000}
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		return err
	}
	utils.InitLogger("console", "file:/dev/stderr", "go-waku", zapcore.WarnLevel)
	options, err := given.options()
	if err != nil {
		return err
	}
	if w.node, err = node.New(options...); err != nil {
		return err
	}
	ctx := context.Background()
	if err := w.node.Start(ctx); err != nil {
		return err
	}
	defer w.node.Stop()
	w.pubsubTopic = protocol.NewStaticShardingPubsubTopic(given.Cluster, given.Shard).String()
	if !given.Client {
		if err := w.hear(ctx); err != nil {
			return err
		}
	}
	addresses := []string{}
	for _, address := range w.node.ListenAddresses() {
		addresses = append(addresses, address.String())
	}
	w.say("ready", fields{"peerId": w.node.ID(), "multiaddrs": addresses})
	return w.obey(ctx)
}

func (s settings) options() ([]node.WakuNodeOption, error) {
	options := []node.WakuNodeOption{
		node.WithLogLevel(zapcore.ErrorLevel),
		node.WithHostAddress(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: s.Port}),
		node.WithClusterID(s.Cluster),
		node.WithShards([]uint16{s.Shard}),
		node.WithMaxConnectionsPerIP(100), // all peers of a test have the same
		node.WithLibP2POptions(
			libp2p.Transport(tcp.NewTCPTransport),
			libp2p.Muxer(yamux.ID, yamux.DefaultTransport),
			libp2p.UserAgent("go-waku of fairway's tests"),
		),
		node.WithWakuFilterLightNode(),
	}
	if s.Key != "" {
		key, err := crypto.HexToECDSA(s.Key)
		if err != nil {
			return nil, err
		}
		options = append(options, node.WithPrivateKey(key))
	}
	if s.Client {
		return append(options, node.WithLightPush()), nil
	}
	if s.WsPort != 0 {
		options = append(options, node.WithWebsockets("127.0.0.1", s.WsPort))
	}
	return append(options,
		node.WithWakuRelayAndMinPeers(0), // it may be the only one that relays
		node.WithWakuFilterFullNode(filter.WithTimeout(filterTimeout), filter.WithFullNodeRateLimiter(rate.Limit(s.Pushes), s.Pushes)),
		node.WithLightPush(lightpush.WithRateLimiter(rate.Limit(s.Pushes), s.Pushes)),
	), nil
}

// hear tells of every message that comes by relay.
func (w *world) hear(ctx context.Context) error {
	subscriptions, err := w.node.Relay().Subscribe(ctx, protocol.NewContentFilter(w.pubsubTopic))
	if err != nil {
		return err
	}
	for _, subscription := range subscriptions {
		go w.tell("relayed", subscription.Ch)
	}
	return nil
}

func (w *world) tell(event string, envelopes <-chan *protocol.Envelope) {
	for envelope := range envelopes {
		message := envelope.Message()
		w.say(event, fields{
			"contentTopic": message.ContentTopic,
			"payload":      base64.StdEncoding.EncodeToString(message.Payload),
			"hash":         envelope.Hash().String(),
		})
	}
}

func (w *world) obey(ctx context.Context) error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<16), maxLineBytes)
	for lines.Scan() {
		var given command
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			return err
		}
		if err := w.do(ctx, given); err != nil {
			w.say("failed", fields{"command": given.Do, "detail": err.Error()})
		}
	}
	return lines.Err()
}

// do carries out one command; commands take turns.
func (w *world) do(ctx context.Context, given command) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	switch given.Do {
	case "dial":
		if err := w.node.DialPeer(ctx, given.Peer); err != nil {
			return err
		}
		w.say("dialled", fields{"peer": given.Peer})
	case "peers":
		relays := []string{}
		if w.node.Relay() != nil {
			for _, one := range w.node.Relay().PubSub().ListPeers(w.pubsubTopic) {
				relays = append(relays, one.String())
			}
		}
		w.say("peers", fields{"connected": w.node.PeerCount(), "relays": relays})
	case "publish":
		message, err := given.message()
		if err != nil {
			return err
		}
		hash, err := w.node.Relay().Publish(ctx, message, relay.WithPubSubTopic(w.pubsubTopic))
		if err != nil {
			return err
		}
		w.say("published", fields{"hash": hash.String()})
	case "push":
		message, err := given.message()
		if err != nil {
			return err
		}
		id, err := peer.Decode(given.Peer)
		if err != nil {
			return err
		}
		hash, err := w.node.Lightpush().Publish(ctx, message, lightpush.WithPubSubTopic(w.pubsubTopic), lightpush.WithPeer(id))
		if err != nil {
			return err
		}
		w.say("pushed", fields{"hash": hash.String()})
	case "subscribe":
		id, err := peer.Decode(given.Peer)
		if err != nil {
			return err
		}
		wanted := protocol.NewContentFilter(w.pubsubTopic, given.Topic)
		made, err := w.node.FilterLightnode().Subscribe(ctx, wanted, filter.WithPeer(id))
		if err != nil {
			return err
		}
		for _, subscription := range made {
			go w.tell("filtered", subscription.C)
		}
		w.say("subscribed", fields{"count": len(made)})
	case "ping":
		id, err := peer.Decode(given.Peer)
		if err != nil {
			return err
		}
		if err := w.node.FilterLightnode().Ping(ctx, id); err != nil {
			return err
		}
		w.say("ponged", fields{})
	case "query":
		return w.query(ctx, given)
	default:
		return fmt.Errorf("there is no command %q", given.Do)
	}
	return nil
}

// query pages through all that a store node has of a content topic.
func (w *world) query(ctx context.Context, given command) error {
	id, err := peer.Decode(given.Peer)
	if err != nil {
		return err
	}
	asking := store.NewWakuStore(nil, w.node.Timesource(), utils.Logger(), rate.Inf)
	asking.SetHost(w.node.Host())
	criteria := store.FilterCriteria{ContentFilter: protocol.NewContentFilter(w.pubsubTopic, given.Topic)}
	page, err := asking.Query(ctx, criteria, store.WithPeer(id), store.WithPaging(true, given.PageSize), store.IncludeData(true))
	if err != nil {
		return err
	}
	hashes, pages := []string{}, 0
	for !page.IsComplete() {
		pages++
		for _, found := range page.Messages() {
			hashes = append(hashes, pb.ToMessageHash(found.MessageHash).String())
		}
		if err := page.Next(ctx); err != nil {
			return err
		}
	}
	w.say("queried", fields{"hashes": hashes, "pages": pages})
	return nil
}

func (c command) message() (*pb.WakuMessage, error) {
	payload, err := base64.StdEncoding.DecodeString(c.Payload)
	if err != nil {
		return nil, err
	}
	return &pb.WakuMessage{
		Payload:      payload,
		ContentTopic: c.Topic,
		Version:      proto.Uint32(0),
		Timestamp:    proto.Int64(time.Now().UnixNano()),
	}, nil
}

type fields map[string]any

func (w *world) say(event string, told fields) {
	told["event"] = event
	line, err := json.Marshal(told)
	if err != nil {
		panic(err)
	}
	w.saying.Lock()
	defer w.saying.Unlock()
	fmt.Println(string(line))
}
