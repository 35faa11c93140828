// Is each partition of a history one log? Asked of porcupine, over the JSON lines of tests/checker/operations.py.
//
// `porcupine FILE...` prints one JSON object: by file, by key, "Ok", "Illegal" or "Unknown" (out of time), and how
// many operations were looked at. A line that begins with # says nothing. Of a key the order is known by its
// offsets, so the state is no more than how many records are there; which they are, `version` says.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	patience      = 60 * time.Second // for a key
	lineBytesMax  = 1 << 28
	never         = math.MaxInt64 // what may have happened may yet do so
	nowhere       = -1
	unknownRecord = -2
)

type operation struct {
	Process    int               `json:"process"`
	F          string            `json:"f"`
	Outcome    string            `json:"outcome"`
	Value      []json.RawMessage `json:"value"`
	Rebalanced []string          `json:"rebalanced"`
	Invoked    *int64            `json:"invoked_ns"`
	Completed  *int64            `json:"completed_ns"`
}

type send struct {
	of     *operation
	offset int64 // nowhere where its client was told none
	value  string
}

type record struct {
	offset int64
	value  string
}

type read struct {
	of      *operation
	records []record
}

type key struct {
	sends []send
	reads []read
}

type verdict struct {
	Result     porcupine.CheckResult `json:"result"`
	Operations int                   `json:"operations"`
}

// What porcupine steps over: a send of the record with this rank, or a read of some, in the order they came in.
type step struct {
	sends bool
	rank  int
	ranks []int
	moved bool // the key came or went meanwhile, so the consumer may have begun elsewhere
}

var log = porcupine.Model{
	Init: func() interface{} { return 0 },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		there, asked := state.(int), input.(step)
		if asked.sends {
			return asked.rank == there, there + 1
		}
		for position, rank := range asked.ranks {
			if rank < 0 || rank >= there {
				return false, there
			}
			if position > 0 && !asked.moved && rank != asked.ranks[position-1]+1 {
				return false, there
			}
		}
		return true, there
	},
}

func main() {
	told := map[string]map[string]verdict{}
	for _, path := range os.Args[1:] {
		keys, err := load(path)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(2)
		}
		told[path] = map[string]verdict{}
		for name, each := range keys {
			steps := each.steps(name)
			result := porcupine.CheckOperationsTimeout(log, steps, patience)
			told[path][name] = verdict{result, len(steps)}
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func load(path string) (map[string]*key, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	keys, index := map[string]*key{}, int64(0)
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, lineBytesMax)
	for number := 1; lines.Scan(); number++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		op := &operation{Invoked: new(int64), Completed: new(int64)}
		*op.Invoked, *op.Completed = index, index
		index++
		if err := json.Unmarshal([]byte(text), op); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		*op.Invoked = min(*op.Invoked, *op.Completed) // who told one time alone told that of the answer
		if op.F != "send" && op.F != "poll" && op.F != "txn" {
			continue
		}
		for _, raw := range op.Value {
			if err := op.add(raw, keys); err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
		}
	}
	return keys, lines.Err()
}

func (op *operation) add(raw json.RawMessage, keys map[string]*key) error {
	var parts []json.RawMessage
	var kind string
	if err := json.Unmarshal(raw, &parts); err != nil || len(parts) < 2 {
		return fmt.Errorf("%s is no micro-operation", raw)
	}
	if err := json.Unmarshal(parts[0], &kind); err != nil {
		return err
	}
	if kind == "poll" {
		var polled map[string][][2]json.RawMessage
		if err := json.Unmarshal(parts[1], &polled); err != nil {
			return err
		}
		for name, rows := range polled {
			found := read{of: op}
			for _, row := range rows {
				var offset int64
				if err := json.Unmarshal(row[0], &offset); err != nil {
					return err
				}
				found.records = append(found.records, record{offset, string(row[1])})
			}
			at(keys, name).reads = append(at(keys, name).reads, found)
		}
		return nil
	}
	var name string
	var offset *int64
	if kind != "send" || len(parts) != 4 {
		return fmt.Errorf("%s is neither send nor poll", raw)
	}
	if err := json.Unmarshal(parts[1], &name); err != nil {
		return err
	}
	if err := json.Unmarshal(parts[2], &offset); err != nil {
		return err
	}
	made := send{op, nowhere, string(parts[3])}
	if offset != nil {
		made.offset = *offset
	}
	at(keys, name).sends = append(at(keys, name).sends, made)
	return nil
}

func at(keys map[string]*key, name string) *key {
	if keys[name] == nil {
		keys[name] = &key{}
	}
	return keys[name]
}

// The key's operations. What was refused is none, nor is what may have happened and nobody saw: whoever reads
// the record of a refused one reads a record that is never sent.
func (k *key) steps(name string) []porcupine.Operation {
	version, places := map[int64]string{}, map[string]int64{}
	note := func(offset int64, value string) {
		if _, known := version[offset]; !known {
			version[offset] = value
		}
		if place, known := places[value]; !known || offset < place {
			places[value] = offset
		}
	}
	for _, each := range k.reads {
		for _, row := range each.records {
			note(row.offset, row.value)
		}
	}
	for _, each := range k.sends {
		if each.of.Outcome == "ok" && each.offset != nowhere {
			note(each.offset, each.value)
		}
	}
	rank := ranks(version)
	var made []porcupine.Operation
	for _, each := range k.sends {
		offset, seen := places[each.value]
		if each.of.Outcome == "ok" && each.offset != nowhere {
			offset = each.offset
		} else if !seen {
			continue
		}
		if each.of.Outcome == "fail" {
			continue
		}
		until := *each.of.Completed
		if each.of.Outcome == "info" {
			until = never
		}
		made = append(made, porcupine.Operation{
			ClientId: each.of.Process, Input: step{sends: true, rank: rank[offset]}, Call: *each.of.Invoked, Return: until,
		})
	}
	for _, each := range k.reads {
		asked := step{}
		for _, moved := range each.of.Rebalanced {
			asked.moved = asked.moved || moved == name
		}
		for _, row := range each.records {
			at := rank[row.offset]
			if version[row.offset] != row.value || places[row.value] != row.offset {
				at = unknownRecord
			}
			asked.ranks = append(asked.ranks, at)
		}
		made = append(made, porcupine.Operation{
			ClientId: each.of.Process, Input: asked, Call: *each.of.Invoked, Return: *each.of.Completed,
		})
	}
	return made
}

func ranks(version map[int64]string) map[int64]int {
	var offsets []int64
	for offset := range version {
		offsets = append(offsets, offset)
	}
	sort.Slice(offsets, func(a, b int) bool { return offsets[a] < offsets[b] })
	rank := map[int64]int{}
	for position, offset := range offsets {
		rank[offset] = position
	}
	return rank
}
