// The Go SDK: mcp.Client, over stdio and HTTP. Arguments as in payments.py.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	record, target := os.Args[1], os.Args[4:]
	count, _ := strconv.Atoi(os.Args[2])
	seconds, _ := strconv.ParseFloat(os.Args[3], 64)
	done, _ := os.ReadFile(record)
	var transport mcp.Transport
	if strings.HasPrefix(target[0], "http") {
		transport = &mcp.StreamableClientTransport{Endpoint: target[0]}
	} else {
		transport = &mcp.CommandTransport{Command: exec.Command(target[0], target[1:]...)}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "payments", Version: "1"}, nil)
	session, err := client.Connect(context.Background(), transport, nil)
	if err != nil {
		panic(err)
	}
	for number := bytes.Count(done, []byte("\n")); number < count; number++ {
		answer := pay(session, fmt.Sprintf("p-%d", number), time.Duration(seconds*float64(time.Second)))
		file, _ := os.OpenFile(record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		file.Write(append(answer, '\n'))
		file.Sync()
		file.Close()
	}
	session.Close()
}

func pay(session *mcp.ClientSession, who string, limit time.Duration) []byte {
	for attempt := 0; attempt < 8; attempt++ {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "pay", Arguments: map[string]any{"who": who}})
		cancel()
		if err == nil {
			text, _ := json.Marshal(result)
			return text
		}
		fmt.Fprintln(os.Stderr, who, err)
	}
	return []byte("no answer")
}
