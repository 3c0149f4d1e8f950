"""What hosts provide outside of hooks: settings, environment, `state.db`, transcripts, source of the installation."""
