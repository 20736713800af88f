//go:build tools

// Package tools keeps the modules of the stock node in go.mod, so that it is built at the version that stands there.
package tools

import _ "github.com/waku-org/go-waku/cmd/waku"
