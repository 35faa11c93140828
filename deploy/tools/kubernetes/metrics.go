package main

import (
	"time"

	"github.com/spf13/cobra"
	server "k8s.io/apiserver/pkg/server"
	metrics "sigs.k8s.io/metrics-server/cmd/metrics-server/app/options"
)

// The shortest time between two looks that the metrics server's own command takes. Figures are right with shorter ones, as
// long as the kubelet looks more often still; with ten seconds a test of an autoscaler waits for little else.
const shortest = 10 * time.Second

// The metrics server, which may look more often than its own command lets it.
func newMetricsCommand() *cobra.Command {
	opts := metrics.NewOptions()
	command := &cobra.Command{
		Use: "metrics-server",
		RunE: func(*cobra.Command, []string) error {
			wanted := opts.MetricResolution
			opts.MetricResolution = max(wanted, shortest)
			if wrong := opts.Validate(); len(wrong) > 0 {
				return wrong[0]
			}
			opts.MetricResolution = wanted
			config, err := opts.ServerConfig()
			if err != nil {
				return err
			}
			running, err := config.Complete()
			if err != nil {
				return err
			}
			return running.RunUntil(server.SetupSignalHandler())
		},
	}
	flags := opts.Flags()
	for _, each := range flags.FlagSets {
		command.Flags().AddFlagSet(each)
	}
	return command
}
